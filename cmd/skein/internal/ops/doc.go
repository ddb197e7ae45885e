// Package ops is what operators see of a process: liveness, readiness and
// metrics over HTTP, and the measuring of every Flight call.
//
// It may import nothing of Skein and must never know what the process serves.
package ops

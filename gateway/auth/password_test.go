package auth

import (
	"fmt"
	"strings"
	"testing"

	"skein/sqlstate"
)

func TestPasswordHashes(t *testing.T) {
	const password = "päss:word"
	one, err := Hash(password)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Hash(password)
	if err != nil || one == two || strings.Contains(one, password) {
		t.Errorf("%s, %s, %v", one, two, err)
	}
	for _, encoded := range []string{one, two} {
		if err := CheckHash(encoded); err != nil {
			t.Error(err)
		}
		h, err := parseHash(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if h.String() != encoded || !h.matches(password) || h.matches(password+" ") || h.matches("") {
			t.Errorf("%s does not tell its password from others", encoded)
		}
	}
	for _, refused := range []string{"", strings.Repeat("x", maxPassword+1)} {
		if _, err := Hash(refused); sqlstate.CodeOf(err) != sqlstate.InvalidParameter {
			t.Errorf("%d bytes: %v", len(refused), err)
		}
	}
}

// What the reference implementation makes is read, too: its command line gives this
// for the password "password" and the salt "somesalt" with -id -t 2 -m 16 -p 1.
func TestHashMadeElsewhere(t *testing.T) {
	h, err := parseHash("$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc")
	if err != nil || !h.matches("password") || h.matches("Password") {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestRefusedHashes(t *testing.T) {
	good, err := Hash("x")
	if err != nil {
		t.Fatal(err)
	}
	with := func(parameters string) string {
		return strings.Replace(good, fmt.Sprintf("m=%d,t=%d,p=%d", newCost.memory, newCost.passes, newCost.lanes), parameters, 1)
	}
	for name, encoded := range map[string]string{
		"empty": "", "prefix": HashPrefix, "argon2i": strings.Replace(good, "2id", "2i", 1), "version": strings.Replace(good, "v=19", "v=16", 1),
		"memory": with("m=65537,t=2,p=1"), "overflow": with("m=4294967297,t=2,p=1"), "passes": with("m=19456,t=9,p=1"), "lanes": with("m=19456,t=2,p=5"),
		"no passes": with("m=19456,t=0,p=1"), "little memory": with("m=7,t=1,p=1"), "weak": with("m=19456,t=1,p=1"), "order": with("t=2,m=19456,p=1"),
		"trailing": with("m=19456,t=2,p=1,x=1"), "more": good + "$", "cut": good[:len(good)-30], "no base64": good[:len(good)-1] + "!",
	} {
		if err := CheckHash(encoded); sqlstate.CodeOf(err) != sqlstate.InvalidParameter {
			t.Errorf("%s, %s: %v", name, encoded, err)
		}
	}
}

package exec

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"skein/sqlstate"
)

var testZones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Monrovia",
	"Pacific/Apia", "Antarctica/Troll", "America/St_Johns", "<+02>-02", "UTC+3",
}

// What a zone's clocks show leads back to an instant at which they show it.
func TestZonesRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(testZones).Draw(rt, "zone")
		z, err := newZone(name)
		if err != nil {
			rt.Fatal(err)
		}
		// One zone value for all, so that what it remembers is put to the test.
		for range 20 {
			per := rapid.SampledFrom([]int64{1, 1e3, 1e6}).Draw(rt, "units")
			t := rapid.Int64Range(-5e9, 9e9).Draw(rt, "seconds")*per + rapid.Int64Range(0, per-1).Draw(rt, "fraction")
			local, err := z.local(t, per)
			if err != nil {
				rt.Fatal(err)
			}
			_, want := time.Unix(floorDiv(t, per), 0).In(z.location).Zone()
			if local-t != int64(want)*per {
				rt.Fatalf("clocks are %d ahead at %d, not %d", (local-t)/per, t, want)
			}
			back, err := z.utc(local, per)
			if err != nil {
				rt.Fatal(err)
			}
			if again, err := z.local(back, per); err != nil || again != local || back < t {
				rt.Fatalf("%d shows %d; that is %d, which shows %d (%v)", t, local, back, again, err)
			}
		}
	})
}

// Times that clocks skip or show twice are what PostgreSQL 15 takes them for.
func TestZoneChanges(t *testing.T) {
	for _, tc := range []struct{ zone, local, utc string }{
		{"Europe/Berlin", "2024-03-31 01:59:59", "2024-03-31 00:59:59"},
		{"Europe/Berlin", "2024-03-31 02:30:00", "2024-03-31 01:30:00"}, // skipped
		{"Europe/Berlin", "2024-03-31 03:00:00", "2024-03-31 01:00:00"},
		{"Europe/Berlin", "2024-10-27 01:59:59", "2024-10-26 23:59:59"},
		{"Europe/Berlin", "2024-10-27 02:30:00", "2024-10-27 01:30:00"}, // twice
		{"America/New_York", "2024-11-03 01:30:00", "2024-11-03 06:30:00"},
		{"Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30 22:00:00"}, // a day skipped
		{"Australia/Lord_Howe", "2024-04-07 01:45:00", "2024-04-06 15:15:00"},
	} {
		z, err := newZone(tc.zone)
		if err != nil {
			t.Fatal(err)
		}
		local, err := time.Parse(time.DateTime, tc.local)
		if err != nil {
			t.Fatal(err)
		}
		got, err := z.utc(local.Unix(), 1)
		if s := time.Unix(got, 0).UTC().Format(time.DateTime); err != nil || s != tc.utc {
			t.Errorf("%s in %s is %s, want %s (%v)", tc.local, tc.zone, s, tc.utc, err)
		}
	}
}

func TestCheckZone(t *testing.T) {
	for name, want := range map[string]string{
		"europe/berlin": "Europe/Berlin", "AMERICA/NEW_YORK": "America/New_York", "utc": "UTC", "cet": "CET",
		"pst": "PST", "EST5EDT": "EST5EDT", "+02": "+02", "UTC-5:30": "UTC-5:30", " Asia/Tokyo ": "Asia/Tokyo",
	} {
		if got, err := CheckZone(name); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"", "Local", "Mars/Olympus", "../../etc/hosts", "+16", "UTC+99", "UTC+1:75", "5", "/etc/localtime", "\x00"} {
		if got, err := CheckZone(name); sqlstate.CodeOf(err) != sqlstate.InvalidParameter {
			t.Errorf("%q is %q, %v", name, got, err)
		}
	}
	for _, seconds := range []int64{0, 3600, -3600, 19800, -1800, 45, -45296} {
		name := ZoneOfOffset(seconds)
		z, err := newZone(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := z.ahead(0); got != seconds {
			t.Errorf("%s is %d ahead, want %d", name, got, seconds)
		}
	}
}

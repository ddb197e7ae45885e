package flightproto_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"skein/catalog"
	"skein/flightproto"
	"skein/sqlstate"
)

// authorityAt is an authority with keys 1 to n at a time of its own.
func authorityAt(now time.Time, secret string, keys ...uint64) *flightproto.Authority {
	var list []catalog.SigningKey
	for _, id := range keys {
		list = append(list, catalog.SigningKey{ID: id, Secret: bytes.Repeat([]byte{byte(id)}, 32)})
	}
	return flightproto.NewAuthority(func() []catalog.SigningKey { return list }, secret, func() time.Time { return now })
}

func TestAnEnvelopeVouchesForItsClaims(t *testing.T) {
	now := time.Now()
	claims := flightproto.Claims{User: "ann", Roles: []string{"reader", "writer"}, Subject: "q.1", Expires: now.Add(time.Hour).Truncate(time.Millisecond)}
	envelope, err := authorityAt(now, "", 1, 2).Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*flightproto.Authority{
		"the same keys": authorityAt(now, "", 1, 2), "after a rotation": authorityAt(now, "", 2, 3), "clocks apart": authorityAt(now.Add(time.Hour+5*time.Second), "", 2),
	} {
		got, err := a.Verify("q.1", envelope)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.User != "ann" || len(got.Roles) != 2 || got.Roles[1] != "writer" || !got.Expires.Equal(claims.Expires) {
			t.Errorf("%s: claims are %+v", name, got)
		}
	}
}

func TestBadEnvelopesAreRefused(t *testing.T) {
	now := time.Now()
	a := authorityAt(now, "", 1)
	signed := func(subject string, life time.Duration) []byte {
		e, err := a.Sign(flightproto.Claims{User: "ann", Subject: subject, Expires: now.Add(life)})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	good := signed("q", time.Hour)
	other := authorityAt(now, "another cluster's secret", 1)
	foreign := flightproto.NewAuthority(func() []catalog.SigningKey {
		return []catalog.SigningKey{{ID: 1, Secret: bytes.Repeat([]byte{9}, 32)}}
	}, "", time.Now)
	forged, err := foreign.Sign(flightproto.Claims{User: "root", Subject: "q", Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := other.SignMeta("gateway")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		envelope []byte
		code     sqlstate.Code
	}{
		"missing":           {nil, sqlstate.InvalidAuthorization},
		"short":             {good[:20], sqlstate.InvalidAuthorization},
		"oversized":         {make([]byte, flightproto.MaxAuthorizationBytes+1), sqlstate.InvalidAuthorization},
		"other format":      {append([]byte{7}, good[1:]...), sqlstate.InvalidAuthorization},
		"forged":            {forged, sqlstate.InvalidAuthorization},
		"expired":           {signed("q", -time.Minute), sqlstate.InsufficientPrivilege},
		"of another query":  {signed("p", time.Hour), sqlstate.InsufficientPrivilege},
		"by cluster secret": {secret, sqlstate.InvalidAuthorization},
	} {
		_, err := a.Verify("q", test.envelope)
		// As a client sees it.
		if got := sqlstate.CodeOf(flightproto.FromStatus(flightproto.ToStatus(err))); err == nil || got != test.code {
			t.Errorf("%s: %v (%s), want %s", name, err, got, test.code)
		}
	}
	// No single bit may differ.
	for bit := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := a.Verify("q", bad); err == nil {
			t.Fatalf("an envelope with bit %d flipped passes", bit)
		}
	}
}

func TestUnknownKeysAreToldApart(t *testing.T) {
	now := time.Now()
	envelope, err := authorityAt(now, "", 4).Sign(flightproto.Claims{Subject: "q", Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var unknown *flightproto.UnknownKeyError
	if _, err := authorityAt(now, "", 1, 2, 3).Verify("q", envelope); !errors.As(err, &unknown) || unknown.ID != 4 {
		t.Errorf("an envelope of a newer key: %v", err)
	}
	if got := sqlstate.CodeOf(flightproto.FromStatus(flightproto.ToStatus(unknown))); got != sqlstate.InvalidAuthorization {
		t.Errorf("an unknown key is %s on the wire", got)
	}
}

func TestClusterSecrets(t *testing.T) {
	now := time.Now()
	const secret = "correct horse battery staple"
	young := authorityAt(now, secret)
	envelope, err := young.SignMeta("gateway")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authorityAt(now, secret, 1, 2).Verify(flightproto.SubjectMeta, envelope); err != nil {
		t.Errorf("a node that does not know the keys yet: %v", err)
	}
	if _, err := authorityAt(now, secret+"!", 1, 2).Verify(flightproto.SubjectMeta, envelope); sqlstate.CodeOf(err) != sqlstate.InvalidAuthorization {
		t.Errorf("another secret: %v", err)
	}
	if !young.Closed() || authorityAt(now, "").Closed() {
		t.Error("a secret does not close the metadata, or none does")
	}
	if e, err := authorityAt(now, "").SignMeta("gateway"); e != nil || err != nil {
		t.Errorf("nothing to sign with gives %x, %v", e, err)
	}
	if _, err := authorityAt(now, "").Sign(flightproto.Claims{Subject: "q"}); flightproto.ReasonOf(err) != flightproto.Unavailable {
		t.Errorf("signing without a key: %v", err)
	}
	long := flightproto.Claims{Subject: "q", Roles: []string{strings.Repeat("r", flightproto.MaxAuthorizationBytes)}}
	var size *flightproto.SizeError
	if _, err := young.Sign(long); !errors.As(err, &size) {
		t.Errorf("claims above the limit: %v", err)
	}
}

func TestSigningKeysHideTheirSecret(t *testing.T) {
	key := catalog.SigningKey{ID: 7, Secret: []byte("hush")}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(format, []catalog.SigningKey{key}) + fmt.Sprintf(format, struct{ K catalog.SigningKey }{key})
		if strings.Contains(text, "hush") || strings.Contains(text, "0x68") || strings.Contains(text, "104") {
			t.Errorf("%s shows %s", format, text)
		}
	}
	if text := key.LogValue().String(); strings.Contains(text, "hush") {
		t.Errorf("logs show %s", text)
	}
}

func BenchmarkAuthority(b *testing.B) {
	now := time.Now()
	a := authorityAt(now, "", 1, 2, 3)
	claims := flightproto.Claims{User: "anonymous", Subject: "0123456789abcdef0123456789abcdef.1", Expires: now.Add(time.Hour)}
	envelope, err := a.Sign(claims)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("sign", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.Sign(claims); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.Verify(claims.Subject, envelope); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A key that was replaced checks what was signed with it until it runs out, a
// little later for clocks that are behind.
func TestReplacedKeysRunOut(t *testing.T) {
	now := time.Now()
	keys := []catalog.SigningKey{
		{ID: 1, Secret: bytes.Repeat([]byte{1}, 32), ValidUntil: now.Add(time.Hour).UnixMilli()}, {ID: 2, Secret: bytes.Repeat([]byte{2}, 32)},
	}
	envelope, err := authorityAt(now, "", 1).Sign(flightproto.Claims{User: "ann", Subject: "q", Expires: now.Add(24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for after, code := range map[time.Duration]sqlstate.Code{
		0: "", time.Hour + 5*time.Second: "", time.Hour + 15*time.Second: sqlstate.InvalidAuthorization,
	} {
		a := flightproto.NewAuthority(func() []catalog.SigningKey { return keys }, "", func() time.Time { return now.Add(after) })
		if _, err := a.Verify("q", envelope); (err == nil) != (code == "") || err != nil && sqlstate.CodeOf(err) != code {
			t.Errorf("after %s: %v", after, err)
		}
	}
}

package auth

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"skein/catalog"
	"skein/consensus"
	"skein/sqlstate"
)

const (
	issuer = "skein"
	// maxToken bounds a token in bytes; names of users have at most 255.
	maxToken = 4096
	// tokenSkew is by how much the clocks of gateways may differ.
	tokenSkew = 10 * time.Second
)

// claims are what a token says: who got it, for which password.
type claims struct {
	jwt.RegisteredClaims
	UserID     uint64 `json:"uid"`
	Credential uint64 `json:"cred"`
}

// errUnknownKey is the error for a token of a key that is not known here, perhaps
// not yet.
var errUnknownKey = errors.New("the token is signed with a key that is not known")

// tokenKey derives from a cluster's signing key, which workers check envelopes
// with, the one for tokens: neither can be taken for the other.
func tokenKey(key catalog.SigningKey) ([]byte, error) {
	return hkdf.Key(sha256.New, key.Secret, nil, "skein client token", sha256.Size)
}

// issue makes a token for a user, signed with the newest key.
func issue(meta *consensus.MetaSnapshot, user consensus.User, now time.Time, life time.Duration) (string, error) {
	if len(meta.Keys) == 0 {
		return "", sqlstate.New(sqlstate.CannotConnectNow, "the cluster's signing key is not known yet").
			WithHint("Retry when the cluster has started.")
	}
	key := meta.Keys[len(meta.Keys)-1]
	secret, err := tokenKey(key)
	if err != nil {
		return "", fmt.Errorf("deriving the key of tokens: %w", err)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Subject: user.Name, Audience: jwt.ClaimStrings{meta.ClusterID},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(life)),
		},
		UserID: user.ID, Credential: user.Credential,
	})
	token.Header["kid"] = strconv.FormatUint(key.ID, 10)
	text, err := token.SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return text, nil
}

// openToken checks a token's signature and times. Errors are errUnknownKey or have
// SQLSTATE 28000; they do not show the token.
func openToken(meta *consensus.MetaSnapshot, text string, now func() time.Time) (*claims, uint64, error) {
	if len(text) > maxToken {
		return nil, 0, refusedToken("has %d bytes, at most %d are possible", len(text), maxToken)
	}
	var c claims
	var keyID uint64
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithIssuer(issuer),
		jwt.WithAudience(meta.ClusterID), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(tokenSkew), jwt.WithTimeFunc(now))
	_, err := parser.ParseWithClaims(text, &c, func(t *jwt.Token) (any, error) {
		name, _ := t.Header["kid"].(string)
		for _, key := range meta.Keys {
			if strconv.FormatUint(key.ID, 10) == name {
				keyID = key.ID
				return tokenKey(key)
			}
		}
		return nil, errUnknownKey
	})
	switch {
	case err == nil:
		return &c, keyID, nil
	case errors.Is(err, errUnknownKey):
		return nil, 0, errUnknownKey
	case errors.Is(err, jwt.ErrTokenExpired):
		return nil, 0, refusedToken("has expired")
	}
	return nil, 0, refusedToken("was not given out by this cluster")
}

func refusedToken(format string, args ...any) *sqlstate.Error {
	return sqlstate.New(sqlstate.InvalidAuthorization, "the token %s", fmt.Sprintf(format, args...)).
		WithHint("Connect again with user and password.")
}

package hosts

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Credentials prove that a process is of a lab: a key, and the certificate of it. They exist in
// memory only, from a lab's start to its end. The key alone is passed on, since the certificate follows from it: ed25519
// signs without randomness (RFC 8032).
type Credentials struct {
	seed        []byte
	certificate tls.Certificate
}

// NewCredentials makes those of a lab.
func NewCredentials() (*Credentials, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	return credentialsOf(seed)
}

// deriveCredentials returns those of one of several labs that share a key, which nobody can tell from those of
// another (RFC 5869).
func deriveCredentials(key []byte, lab string) (*Credentials, error) {
	seed, err := hkdf.Key(sha256.New, key, nil, "ndklab credentials "+lab, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	return credentialsOf(seed)
}

// ParseCredentials returns those that String wrote.
func ParseCredentials(text string) (*Credentials, error) {
	seed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, errors.New("credentials are malformed")
	}
	return credentialsOf(seed)
}

// String returns the secret.
func (c *Credentials) String() string { return base64.RawURLEncoding.EncodeToString(c.seed) }

func credentialsOf(seed []byte) (*Credentials, error) {
	key := ed25519.NewKeyFromSeed(seed)
	// Its dates are not looked at: the clocks of hosts may differ by any amount.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &Credentials{seed: seed, certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

var errStranger = errors.New("the peer has another certificate: it is not of this lab")

// config returns how both ends use TLS: each shows the lab's certificate and accepts it alone.
func (c *Credentials) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{c.certificate},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // VerifyConnection does instead: there are no names or authorities
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 || !bytes.Equal(s.PeerCertificates[0].Raw, c.certificate.Certificate[0]) {
				return errStranger
			}
			return nil
		},
		SessionTicketsDisabled: true, // a session that is resumed would show no certificate
	}
}

// sign returns the authentication code of some text under the lab's secret. use tells its uses apart.
func (c *Credentials) sign(use string, parts ...[]byte) []byte {
	key := hmac.New(sha256.New, c.seed)
	key.Write([]byte("ndklab " + use)) // a key of its own: nothing else is signed with the seed
	mac := hmac.New(sha256.New, key.Sum(nil))
	for _, p := range parts {
		mac.Write(p)
	}
	return mac.Sum(nil)
}

package bed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is longer than any bed lives, a demo left running over a holiday included.
const certificateLife = 30 * 24 * time.Hour

// An authority is the bed's certificate authority. The API server trusts it for clients, and clients trust it for the API
// server.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

// A keyPair is a certificate with its private key, both in PEM.
type keyPair struct{ cert, key []byte }

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(pkix.Name{CommonName: "test bed"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{key: key, cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// server issues the API server's certificate, for the names by which it is reached here.
func (a *authority) server() (keyPair, error) {
	template := certificate(pkix.Name{CommonName: "kube-apiserver"})
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(nodeIP), net.ParseIP(serviceIP)}
	template.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.issue(template)
}

// client issues a certificate that the API server takes for a user: its common name is the user, its organizations are the
// groups (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates).
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	template := certificate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue a certificate for %s: %w", template.Subject, err)
	}
	keyPEM, err := privateKeyPEM(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func certificate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		// Two certificates of one issuer must not share a number, and nobody reads it: the clock serves.
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      subject,
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(certificateLife),
	}
}

func privateKeyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// Files of the control plane's keys and certificates, in the folder that writePKI fills.
const (
	caFile           = "ca.crt"
	serverCertFile   = "apiserver.crt"
	serverKeyFile    = "apiserver.key"
	serviceKeyFile   = "service-account.key"
	serviceKeyPublic = "service-account.pub"
	kubeletCertFile  = "kubelet-client.crt" // the API server's, as a client of kubelets
	kubeletKeyFile   = "kubelet-client.key"
)

// writePKI makes a certificate authority and writes what the API server and the controller manager read.
func writePKI(dir string) (*authority, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, fmt.Errorf("make the certificate authority: %w", err)
	}
	server, err := ca.server()
	if err != nil {
		return nil, err
	}
	kubelet, err := ca.client("kube-apiserver", administrators)
	if err != nil {
		return nil, err
	}
	// Service account tokens are signed with a key of their own.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := privateKeyPEM(key)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{
		caFile: ca.pem, serverCertFile: server.cert, serverKeyFile: server.key, serviceKeyFile: private, serviceKeyPublic: public,
		kubeletCertFile: kubelet.cert, kubeletKeyFile: kubelet.key,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return ca, nil
}

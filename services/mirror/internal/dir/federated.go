package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

// federatedPrefix begins the names of files that all mirrors of a directory
// share. No cluster's prefix begins so.
const federatedPrefix = "federated."

// lockName is a file that holds nothing: whoever locks it may change shared files.
const lockName = ".federated.lock"

// Join makes the cluster a member of exactly these federated services. The
// mirrors of other clusters write the same files, so one at a time does.
func (s *Sink) Join(ctx context.Context, want []derive.Member) (done reconcile.Done, err error) {
	files, err := filepath.Glob(filepath.Join(s.Path, federatedPrefix+"*.yaml"))
	if err != nil || len(want) == 0 && len(files) == 0 {
		return done, err
	}
	unlock, err := s.lock()
	if err != nil {
		return done, fmt.Errorf("locking the federated services: %w", err)
	}
	defer unlock()
	if files, err = filepath.Glob(filepath.Join(s.Path, federatedPrefix+"*.yaml")); err != nil {
		return done, err
	}
	var errs []error
	// What a process left unfinished when it died: nobody else writes now.
	unfinished, err := filepath.Glob(filepath.Join(s.Path, "."+federatedPrefix+"*.tmp"))
	for _, file := range unfinished {
		errs = append(errs, os.Remove(file))
	}
	errs = append(errs, err)
	wanted := map[string]bool{}
	for _, m := range want {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		name := federatedPrefix + m.Service.Namespace + "." + m.Service.Name + ".yaml"
		wanted[name] = true
		have, err := s.read(name)
		if err == nil {
			err = s.write(name, derive.Mirror{Service: derive.Join(have, m)}, &done)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("joining the federated service %s: %w", m.Key(), err))
		}
	}
	for _, file := range files {
		if name := filepath.Base(file); !wanted[name] {
			if err := s.leave(name, &done); err != nil {
				errs = append(errs, fmt.Errorf("leaving a federated service: %w", err))
			}
		}
	}
	return done, errors.Join(errs...)
}

func (s *Sink) leave(name string, done *reconcile.Done) error {
	have, err := s.read(name)
	if err != nil || have == nil {
		return err
	}
	next, left := derive.Leave(have, s.Cluster)
	if left {
		return s.write(name, derive.Mirror{Service: next}, done)
	}
	if err := os.Remove(filepath.Join(s.Path, name)); err != nil {
		return err
	}
	done.Deleted++
	return nil
}

// read gives the service that a file holds; nil when there is no such file.
func (s *Sink) read(name string) (*corev1.Service, error) {
	b, err := os.ReadFile(filepath.Join(s.Path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	svc := new(corev1.Service)
	if err := yaml.Unmarshal(bytes.TrimSpace(b), svc); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if !derive.IsFederated(svc) || !strings.HasPrefix(name, federatedPrefix+svc.Namespace+".") {
		return nil, fmt.Errorf("%s is not a federated service of ours", name)
	}
	return svc, nil
}

// lock waits for its turn; other processes hold it for as long as they write.
func (s *Sink) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.Path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil // which gives the lock back
}

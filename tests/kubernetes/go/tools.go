//go:build tools

// Package kube names the programs that `make kubernetes` builds, so that go.mod keeps what they need.
package kube

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)

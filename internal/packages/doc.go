// Package packages tries what a release consists of, as make packages has made it in
// bin/dist, and of a tag in bin/candidate: the archive, the .deb and the .rpm in a Debian of
// their own, the image, and the Helm chart before a kube-apiserver. Its tests are built with the
// tag packages alone: they need root, debootstrap, lintian and rpm, and minutes.
package packages

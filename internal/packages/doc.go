// Package packages tries what a release consists of, as make packages has made it in
// bin/dist: the archive, the .deb in a Debian of its own, the .rpm, the image, and the Helm
// chart before a kube-apiserver. Its tests are built with the tag packages alone: they need
// root, debootstrap and rpm, and minutes.
package packages

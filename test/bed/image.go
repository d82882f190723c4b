package bed

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// An Image is a container image for the node, which has no registry to pull from: either an archive, or one that is made of
// files of this machine and nothing else.
type Image struct {
	// Reference is what pods call it. It has a tag other than latest, because a kubelet pulls what has none at each start.
	Reference string
	// Archive is the path of an image archive as docker, podman and buildah write it (docker-archive or oci-archive), which holds
	// Reference. The fields below do not matter then.
	Archive string

	// Files says which file of this machine is at which path of the image. All are executable.
	Files map[string]string
	// Links are symbolic links, by their paths.
	Links map[string]string
	// Entrypoint is the command, and User whom it runs as; empty: root.
	Entrypoint []string
	User       string
}

const (
	// BoxImage holds busybox with all its commands in /bin, for applications in tests. Its entry point is /bin/sh.
	BoxImage = "test-bed.invalid/box:bed"
	// SleepImage does nothing until it is killed.
	SleepImage = "test-bed.invalid/sleep:bed"
)

// Box returns an image with what is in BoxImage, and another entry point: for ImportImage, on a bed with a real node.
func (b *Bed) Box(reference string, entrypoint ...string) Image {
	return Image{
		Reference: reference, Files: map[string]string{"/bin/busybox": b.node.busybox}, Links: b.node.commands, Entrypoint: entrypoint,
	}
}

// RemoveImage makes the node forget an image. Containers that were made of it go on; new ones cannot be made, since there is
// nothing to pull from.
func (b *Bed) RemoveImage(ctx context.Context, reference string) error {
	if b.node == nil {
		return fmt.Errorf("remove the image %s: this bed has no real node", reference)
	}
	if _, err := b.ctr(ctx, "images", "remove", "--sync", reference); err != nil {
		return fmt.Errorf("remove the image %s: %w", reference, err)
	}
	return nil
}

// importTimeout bounds ImportImage. Hundreds of megabytes take seconds.
const importTimeout = 2 * time.Minute

// check says whether there is something of which the image can be made.
func (i *Image) check() error {
	sources := slices.Sorted(maps.Values(i.Files))
	if i.Archive != "" {
		sources = []string{i.Archive}
	}
	for _, source := range sources {
		if info, err := os.Stat(source); err != nil {
			return fmt.Errorf("make the image %s: %w", i.Reference, err)
		} else if !info.Mode().IsRegular() {
			return fmt.Errorf("make the image %s: %s is no file", i.Reference, source)
		}
	}
	return nil
}

// ImportImage makes an image known to the node.
func (b *Bed) ImportImage(ctx context.Context, image Image) (err error) {
	if b.node == nil {
		return fmt.Errorf("import the image %s: this bed has no real node", image.Reference)
	}
	if err := image.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	archive := image.Archive
	if archive == "" {
		scratch, err := os.MkdirTemp(b.path("tmp"), "image-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
		archive = filepath.Join(scratch, "image.tar")
		if err := image.write(archive); err != nil {
			return fmt.Errorf("make the image %s: %w", image.Reference, err)
		}
	}
	if _, err := b.ctr(ctx, "images", "import", "--snapshotter="+b.node.snapshotter, archive); err != nil {
		return fmt.Errorf("import the image %s: %w", image.Reference, err)
	}
	names, err := b.ctr(ctx, "images", "list", "--quiet", "name=="+image.Reference)
	if err != nil {
		return fmt.Errorf("look for the image %s: %w", image.Reference, err)
	}
	if strings.TrimSpace(names) == "" {
		return fmt.Errorf("import the image %s: no image of that name is in %s", image.Reference, archive)
	}
	// containerd tells the part of it that kubelet asks, and that one leaves its mark when it knows.
	return poll(ctx, "wait for containerd to know the image "+image.Reference, func(ctx context.Context) error {
		known, err := b.ctr(ctx, "images", "list", "--quiet", `name==`+image.Reference+`,labels."io.cri-containerd.image"==managed`)
		if err == nil && strings.TrimSpace(known) != image.Reference {
			err = errors.New("it does not")
		}
		return err
	})
}

// write writes the image as docker-archive, the format of `docker save`: a tar file with a manifest, a configuration and a layer
// (https://github.com/moby/docker-image-spec/blob/v1.3.1/spec.md#combined-image-json--filesystem-changeset-format).
func (i Image) write(archive string) (err error) {
	layer := archive + ".layer"
	digest, err := i.writeLayer(layer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(layer)) }()
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": i.Entrypoint, "User": i.User, "WorkingDir": "/", "Env": []string{"PATH=/bin:/"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{i.Reference}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	return writeTar(archive, func(out *tar.Writer) error {
		return errors.Join(
			addContent(out, "manifest.json", manifest),
			addContent(out, "config.json", config),
			addFile(out, "layer.tar", layer, 0o644),
		)
	})
}

// writeLayer writes the image's files into a tar file and returns its SHA-256.
func (i Image) writeLayer(layer string) (digest string, err error) {
	if err := writeTar(layer, func(out *tar.Writer) error {
		made := map[string]bool{}
		errs := []error{out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777})}
		for _, name := range slices.Sorted(maps.Keys(i.Files)) {
			errs = append(errs, addParents(out, made, name), addFile(out, strings.TrimPrefix(name, "/"), i.Files[name], 0o755))
		}
		for _, name := range slices.Sorted(maps.Keys(i.Links)) {
			errs = append(errs, addParents(out, made, name), out.WriteHeader(&tar.Header{
				Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(name, "/"), Linkname: i.Links[name], Mode: 0o777,
			}))
		}
		return errors.Join(errs...)
	}); err != nil {
		return "", err
	}
	file, err := os.Open(layer)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func writeTar(file string, fill func(*tar.Writer) error) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	writer := tar.NewWriter(out)
	return errors.Join(fill(writer), writer.Close(), out.Close())
}

// addParents adds the folders above name, once each.
func addParents(out *tar.Writer, made map[string]bool, name string) error {
	parent := path.Dir(strings.TrimPrefix(name, "/"))
	if parent == "." || made[parent] {
		return nil
	}
	made[parent] = true
	return errors.Join(
		addParents(out, made, parent),
		out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: parent + "/", Mode: 0o755}),
	)
}

func addContent(out *tar.Writer, name string, content []byte) error {
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}

func addFile(out *tar.Writer, name, source string, mode int64) error {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(out, file)
	return err
}

//go:build unix

package cli

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// journalled reports whether out is the stream that systemd reads for its journal.
func journalled(out io.Writer) bool {
	file, is := out.(*os.File)
	stream := os.Getenv("JOURNAL_STREAM") // device:inode
	if !is || stream == "" {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	return is && stream == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

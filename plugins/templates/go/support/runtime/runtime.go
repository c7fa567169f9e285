// Package runtime lends memory to the host, under the names that wit-bindgen uses.
package runtime

import (
	"runtime"
	"unsafe"
)

// Allocate makes room that neither moves nor goes before the pinner lets go of it.
func Allocate(pinner *runtime.Pinner, size, align uintptr) unsafe.Pointer {
	if size == 0 {
		return nil
	}
	// Words of eight bytes are aligned for everything in the contract.
	words := make([]uint64, (size+7)/8)
	room := unsafe.Pointer(unsafe.SliceData(words))
	pinner.Pin(room)
	return room
}

// What the host has written for the call that is about to begin.
var arguments runtime.Pinner

// Unpin gives the arguments to the garbage collector: from here on Go's own references keep them.
func Unpin() { arguments.Unpin() }

// Tells WASI's adapter to answer with the last time it knew. The collector asks for the time when
// it runs, and calls of the host are forbidden while it hands arguments in.
//
//go:wasmimport wasi_snapshot_preview1 adapter_monotonic_clock_set_paused
func pauseClock(paused bool)

// WASI's adapter asks for its own stack and state while Go's runtime begins, when nothing can be
// allocated: two pages of 64 KiB and a little, for ever.
var early struct {
	room [160 << 10]byte
	used uintptr
}

// Whether Go's runtime is there.
var begun bool

func init() { begun = true }

// Must call nothing of Go's runtime.
func allocateEarly(size, align uintptr) unsafe.Pointer {
	base := uintptr(unsafe.Pointer(&early.room))
	at := (base + early.used + align - 1) &^ (align - 1)
	early.used = at + size - base
	if early.used > uintptr(len(early.room)) {
		return nil
	}
	return unsafe.Add(unsafe.Pointer(&early.room), at-base)
}

//go:wasmexport cabi_realloc
func realloc(old unsafe.Pointer, oldSize, align, size uintptr) unsafe.Pointer {
	if !begun {
		return allocateEarly(size, align)
	}
	if old != nil {
		panic("the host never makes room grow")
	}
	pauseClock(true)
	room := Allocate(&arguments, size, align)
	pauseClock(false)
	return room
}

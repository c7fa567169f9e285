// Package runtime lends memory to the host, under the names that wit-bindgen uses.
package runtime

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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

// The garbage collector asks for the time whenever it runs, and nothing may be asked of the host
// while it hands arguments in. So it does not run by itself, but where Collect is called, and within
// a call only if that needs so much.
const (
	garbage = 8 << 20
	most    = 32 << 20
)

var heap = []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}

// What was in use after the last collection.
var live uint64

func inUse() uint64 {
	metrics.Read(heap)
	return heap[0].Value.Uint64()
}

// Collect frees what is no longer used, if that may be much. To be called where the host may be
// asked for the time: within a handler, and not while it is called.
func Collect() {
	if inUse() < live+garbage {
		return
	}
	runtime.GC()
	live = inUse()
	debug.SetMemoryLimit(int64(max(most, 2*live)))
}

// Tells WASI's adapter to answer with the last time it knew, which is all that allocating asks for
// while nothing is collected.
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

func init() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(most)
	begun = true
}

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

// Handle is a resource of the host that a value holds, until it is given away or dropped.
type Handle struct{ value int32 }

// MakeHandle holds a resource.
func MakeHandle(value int32) *Handle { return &Handle{value} }

// Use is the handle, which must still be held.
func (handle *Handle) Use() int32 {
	if handle.value == 0 {
		panic("a resource was used after it was given away or dropped")
	}
	return handle.value
}

// Take gives the handle away.
func (handle *Handle) Take() int32 {
	value := handle.Use()
	handle.value = 0
	return value
}

// TakeOrNil gives it away if it is still held; otherwise it is 0.
func (handle *Handle) TakeOrNil() int32 {
	value := handle.value
	handle.value = 0
	return value
}

// Set holds another resource in its place.
func (handle *Handle) Set(value int32) {
	if handle.value != 0 {
		panic("a resource would be lost")
	}
	handle.value = value
}

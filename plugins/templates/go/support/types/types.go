// Package types holds the shapes of WIT that Go lacks, under the names that wit-bindgen uses.
package types

// The tags of an Option.
const (
	OptionNone uint8 = iota
	OptionSome
)

// Option is a value that may be missing.
type Option[T any] struct {
	tag   uint8
	value T
}

// Some is an option with a value.
func Some[T any](value T) Option[T] { return Option[T]{tag: OptionSome, value: value} }

// None is an option without one.
func None[T any]() Option[T] { return Option[T]{} }

// Tag is OptionNone or OptionSome.
func (option Option[T]) Tag() uint8 { return option.tag }

// Some is the value; it panics if there is none.
func (option Option[T]) Some() T {
	if option.tag == OptionNone {
		panic("an option without a value was asked for it")
	}
	return option.value
}

// SomeOr is the value, or the other where there is none.
func (option Option[T]) SomeOr(other T) T {
	if option.tag == OptionNone {
		return other
	}
	return option.value
}

// The tags of a Result.
const (
	ResultOk uint8 = iota
	ResultErr
)

// Result is a value or an error.
type Result[T, E any] struct {
	tag   uint8
	value T
	err   E
}

// Ok is a result with a value.
func Ok[T, E any](value T) Result[T, E] { return Result[T, E]{tag: ResultOk, value: value} }

// Err is a result with an error.
func Err[T, E any](err E) Result[T, E] { return Result[T, E]{tag: ResultErr, err: err} }

// Tag is ResultOk or ResultErr.
func (result Result[T, E]) Tag() uint8 { return result.tag }

// Ok is the value; it panics if there is an error.
func (result Result[T, E]) Ok() T {
	if result.tag == ResultErr {
		panic("a failed result was asked for its value")
	}
	return result.value
}

// Err is the error; it panics if there is none.
func (result Result[T, E]) Err() E {
	if result.tag == ResultOk {
		panic("a good result was asked for its error")
	}
	return result.err
}

// Unit is the value of a result that has none.
type Unit struct{}

// Tuple2 is a pair.
type Tuple2[A, B any] struct {
	F0 A
	F1 B
}

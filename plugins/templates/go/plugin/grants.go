package plugin

import (
	"errors"
	"fmt"
	"time"

	"handlers/order-check/bindings/dispatcher_plugin_queues"
	queuestypes "handlers/order-check/bindings/dispatcher_plugin_queues_types"
	types "handlers/order-check/bindings/dispatcher_plugin_types"
	config "handlers/order-check/bindings/wasi_config_store"
	keyvalue "handlers/order-check/bindings/wasi_keyvalue_store"
	wit "handlers/order-check/support/types"
)

// Send sends text to a queue that `allow-send` grants, to be received after this delay, and returns the
// message's id.
func Send(queue string, body string, delay time.Duration) (string, error) {
	sent := dispatcher_plugin_queues.Send(queue, queuestypes.Outgoing{
		Body:            types.MakeBodyText(body),
		Delay:           milliseconds(delay).Some(),
		Group:           wit.None[string](),
		DeduplicationId: wit.None[string](),
	})
	if sent.Tag() == wit.ResultOk {
		return sent.Ok(), nil
	}
	switch failed := sent.Err(); failed.Tag() {
	case queuestypes.SendErrorForbidden:
		return "", errors.New("not sent, not granted: " + failed.Forbidden())
	case queuestypes.SendErrorRefused:
		return "", errors.New("not sent, refused: " + failed.Refused())
	default:
		return "", errors.New("not sent: " + failed.Unavailable())
	}
}

// Setting is the text that `setting` gives this name, and whether there is one.
func Setting(name string) (string, bool) {
	found := config.Get(name)
	if found.Tag() == wit.ResultErr || found.Ok().Tag() == wit.OptionNone {
		return "", false
	}
	return found.Ok().Some(), true
}

// Store holds keys with values.
type Store struct{ bucket *keyvalue.Bucket }

// OpenStore opens a store that `store` grants by this name.
func OpenStore(name string) (*Store, error) {
	opened := keyvalue.Open(name)
	if opened.Tag() == wit.ResultErr {
		return nil, storeError(opened.Err())
	}
	return &Store{opened.Ok()}, nil
}

// Get is the value of a key; nil if there is none.
func (store *Store) Get(key string) ([]byte, error) {
	found := store.bucket.Get(key)
	if found.Tag() == wit.ResultErr {
		return nil, storeError(found.Err())
	}
	return found.Ok().SomeOr(nil), nil
}

// Set writes a value.
func (store *Store) Set(key string, value []byte) error {
	if written := store.bucket.Set(key, value); written.Tag() == wit.ResultErr {
		return storeError(written.Err())
	}
	return nil
}

// Delete removes a key.
func (store *Store) Delete(key string) error {
	if removed := store.bucket.Delete(key); removed.Tag() == wit.ResultErr {
		return storeError(removed.Err())
	}
	return nil
}

// Close gives the store back. What is not closed is given back by the garbage collector.
func (store *Store) Close() { store.bucket.Drop() }

func storeError(failed keyvalue.Error) error {
	if failed.Tag() == keyvalue.ErrorOther {
		return fmt.Errorf("the store: %s", failed.Other())
	}
	return errors.New("the store is not granted to this plugin: --store")
}

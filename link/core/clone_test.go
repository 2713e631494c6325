package core

import (
	"reflect"
	"unsafe"
)

// clone returns a deep copy of *p: everything it reaches, shared and circular pointers too.
func clone[T any](p *T) *T {
	c := cloner{}
	return c.copy(reflect.ValueOf(p)).Interface().(*T)
}

type cloner map[unsafe.Pointer]reflect.Value

func (c cloner) copy(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	c.into(to, v)
	return to
}

// into copies v to to; both are addressable or v is a plain value.
func (c cloner) into(to, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if done, ok := c[v.UnsafePointer()]; ok && done.Type() == v.Type() {
			to.Set(done)
			return
		}
		p := reflect.New(v.Type().Elem())
		c[v.UnsafePointer()] = p
		c.into(p.Elem(), v.Elem())
		to.Set(p)
	case reflect.Interface:
		if !v.IsNil() {
			to.Set(c.copy(v.Elem()))
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		s := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		if flat(v.Type().Elem()) {
			reflect.Copy(s, v)
		} else {
			for i := range v.Len() {
				c.into(s.Index(i), v.Index(i))
			}
		}
		to.Set(s)
	case reflect.Array:
		for i := range v.Len() {
			c.into(to.Index(i), v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		m := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			m.SetMapIndex(it.Key(), c.copy(it.Value()))
		}
		to.Set(m)
	case reflect.Struct:
		if flat(v.Type()) {
			to.Set(v)
			return
		}
		for i := range v.NumField() {
			from, dst := v.Field(i), to.Field(i)
			// Fields that are not exported are reached by their address.
			dst = reflect.NewAt(dst.Type(), dst.Addr().UnsafePointer()).Elem()
			if from.CanAddr() {
				from = reflect.NewAt(from.Type(), from.Addr().UnsafePointer()).Elem()
			}
			c.into(dst, from)
		}
	default:
		to.Set(v)
	}
}

var flats = map[reflect.Type]bool{}

// flat says that copying a value of type t copies all of it.
func flat(t reflect.Type) bool {
	f, ok := flats[t]
	if ok {
		return f
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		f = false
	case reflect.Struct:
		f = true
		for i := range t.NumField() {
			f = f && flat(t.Field(i).Type)
		}
	case reflect.Array:
		f = flat(t.Elem())
	default:
		f = true
	}
	flats[t] = f
	return f
}

package recipe

import (
	"fmt"
	"strings"
)

// mapAt returns the object at a path of fields, not copied. ok is false when a field of the path is absent or null. The error
// names the field that has another shape.
func mapAt(object map[string]any, path ...string) (found map[string]any, ok bool, err error) {
	found = object
	for i, field := range path {
		value := found[field]
		if value == nil {
			return nil, false, nil
		}
		next, isMap := value.(map[string]any)
		if !isMap {
			return nil, false, fmt.Errorf("%s is %T, not an object", strings.Join(path[:i+1], "."), value)
		}
		found = next
	}
	return found, true, nil
}

// stringAt returns a field, empty when it is absent or null.
func stringAt(object map[string]any, field string) (string, error) {
	value := object[field]
	if value == nil {
		return "", nil
	}
	text, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("%s is %T, not a string", field, value)
	}
	return text, nil
}

// prefixed puts the path before the name of a field that an error begins with.
func prefixed(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s%w", path, err)
}

// intOf returns a whole number as JSON decoders give it, int64 or float64; 0 for what is none.
func intOf(value any) int64 {
	switch number := value.(type) {
	case int64:
		return number
	case float64:
		if whole := int64(number); float64(whole) == number {
			return whole
		}
	}
	return 0
}

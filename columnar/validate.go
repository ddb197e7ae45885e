package columnar

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Validate checks that an array that somebody else has made is sound: its
// buffers are as long as they must be, and offsets, indices and run ends lie
// within what they refer to. Only then may FromArrow read it. That texts are
// UTF-8 is for CheckUTF8 to see, where the layout allows it to be told apart.
func Validate(arr arrow.Array) error {
	switch a := arr.(type) {
	case array.ExtensionArray:
		return Validate(a.Storage())
	case *array.Null:
		return nil // it has no buffers, which the library's check takes for a mistake
	case *array.Dictionary:
		if err := array.Validate(a); err != nil {
			return err
		}
		return Validate(a.Dictionary()) // FromArrow checks the indices
	case *array.String:
		if err := array.Validate(a); err != nil || a.Len() == 0 {
			return err
		}
		return validateOffsets(a.ValueOffsets())
	case *array.LargeString:
		if err := array.Validate(a); err != nil || a.Len() == 0 {
			return err
		}
		return validateOffsets(a.ValueOffsets())
	}
	return array.ValidateFull(arr)
}

// validateOffsets checks those between the first and the last, whose place in
// the text buffer the basic check has looked at.
func validateOffsets[T int32 | int64](offsets []T) error {
	if offsets[0] < 0 {
		return fmt.Errorf("the first text starts at byte %d", offsets[0])
	}
	for i := 1; i < len(offsets); i++ {
		if offsets[i] < offsets[i-1] {
			return fmt.Errorf("text %d starts at byte %d and ends at byte %d", i-1, offsets[i-1], offsets[i])
		}
	}
	return nil
}

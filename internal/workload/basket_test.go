package workload

import (
	"slices"
	"strings"
	"testing"
)

func TestReadBaskets(t *testing.T) {
	got, err := ReadBaskets(strings.NewReader("{\"cart\":1,\"items\":[12,13]}\n\n {\"items\":[7],\"cart\":2} \r\n{\"cart\":3,\"items\":[9]}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Basket{{1, []int64{12, 13}}, {2, []int64{7}}, {3, []int64{9}}}
	if !slices.EqualFunc(got, want, func(a, b Basket) bool { return a.Cart == b.Cart && slices.Equal(a.Items, b.Items) }) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReadBasketsRefusesWithTheLine(t *testing.T) {
	good := `{"cart":1,"items":[1]}` + "\n"
	for name, test := range map[string]struct{ in, want string }{
		"nothing":        {"\n\n", "has no basket"},
		"not JSON":       {good + "cart 2", "line 2: "},
		"unknown field":  {good + `{"cart":1,"items":[1],"price":3}`, "line 2: "},
		"two on a line":  {good + good[:len(good)-1] + good, "line 2: has something behind"},
		"no items":       {`{"cart":1}`, "line 1: has no items"},
		"zero item":      {good + good + `{"cart":1,"items":[0]}`, "line 3: item 0"},
		"negative item":  {`{"cart":1,"items":[4,-4]}`, "line 1: item -4"},
		"repeated item":  {`{"cart":1,"items":[4,5,4]}`, "line 1: item 4 is there twice"},
		"fraction":       {`{"cart":1,"items":[1.5]}`, "line 1: "},
		"over int64":     {`{"cart":1,"items":[9223372036854775808]}`, "line 1: "},
		"too many items": {`{"cart":1,"items":[` + strings.Repeat("1,", maxBasketItems) + `1]}`, "more than the limit"},
		"overlong line":  {good + `{"cart":1,"items":[` + strings.Repeat(" ", maxBasketLine) + `1]}`, "line 2: longer than the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadBaskets(strings.NewReader(test.in))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if got != nil {
				t.Errorf("returned %v beside the error", got)
			}
		})
	}
}

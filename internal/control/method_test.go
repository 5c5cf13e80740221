package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
)

type rectangle struct{ Width, Height int }

var (
	methodArea  = NewMethod[rectangle, int]("area")
	methodAbout = NewMethod[None, map[string]int]("about")
	methodWrite = NewMethod[string, []int]("write").WithFiles(1, 2)
	methodFail  = NewProcedure[string]("fail")
	methodTake  = NewProcedure[None]("take").WithFiles(2, 2)
	noticeSize  = NewNotice[rectangle]("size")
)

// shapes handles all of them. sizes has the notices.
func shapes(sizes chan<- rectangle) *Mux {
	var mux Mux
	methodArea.Handle(&mux, func(_ context.Context, _ *Request, r rectangle) (int, error) {
		if r.Width < 0 {
			return 7, Errorf(Unable, "a width of %d", r.Width)
		}
		return r.Width * r.Height, nil
	})
	methodAbout.Handle(&mux, func(_ context.Context, _ *Request, none None) (map[string]int, error) {
		if none != nil {
			return nil, errors.New("parameters")
		}
		return map[string]int{"sides": 4}, nil
	})
	methodWrite.Handle(&mux, func(_ context.Context, r *Request, text string) (written []int, err error) {
		for _, f := range r.Files {
			n, err := f.WriteString(text)
			if err != nil {
				return nil, err
			}
			written = append(written, n)
		}
		return written, nil
	})
	methodFail.Handle(&mux, func(_ context.Context, _ *Request, why string) error {
		if why == "" {
			return nil
		}
		return errors.New(why)
	})
	methodTake.Handle(&mux, func(context.Context, *Request, None) error { return nil })
	noticeSize.Handle(&mux, func(_ context.Context, _ *Request, r rectangle) error {
		sizes <- r
		return nil
	})
	return &mux
}

func TestMethods(t *testing.T) {
	sizes := make(chan rectangle, 2)
	a, _ := pair(t, nil, shapes(sizes).Serve)
	ctx := t.Context()
	if area, err := methodArea.Call(ctx, a, rectangle{3, 4}); area != 12 || err != nil {
		t.Errorf("area: %d, %v", area, err)
	}
	area, err := methodArea.Call(ctx, a, rectangle{-1, 4})
	if e := (*Error)(nil); !errors.As(err, &e) || *e != (Error{Code: Unable, Message: "a width of -1"}) || area != 0 {
		t.Errorf("area: %d, %v", area, err)
	}
	if about, err := methodAbout.Call(ctx, a, nil); !reflect.DeepEqual(about, map[string]int{"sides": 4}) || err != nil {
		t.Errorf("about: %v, %v", about, err)
	}
	if err := methodFail.Call(ctx, a, ""); err != nil {
		t.Errorf("fail: %v", err)
	}
	if err := methodFail.Call(ctx, a, "a reason"); err == nil || err.Error() != "a reason" {
		t.Errorf("fail: %v", err)
	}
	if err := noticeSize.Send(a, rectangle{5, 6}); err != nil {
		t.Error(err)
	}
	if got := <-sizes; got != (rectangle{5, 6}) {
		t.Errorf("size: %v", got)
	}
}

// TestMethodFiles: a request carries as many files as its method says.
func TestMethodFiles(t *testing.T) {
	a, _ := pair(t, nil, shapes(nil).Serve)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	written, err := methodWrite.Call(t.Context(), a, "some", w, w)
	w.Close()
	if !reflect.DeepEqual(written, []int{4, 4}) || err != nil {
		t.Errorf("write: %v, %v", written, err)
	}
	if text, err := io.ReadAll(r); string(text) != "somesome" || err != nil {
		t.Errorf("the files have %q, %v", text, err)
	}
	for _, test := range []struct {
		call func(files ...*os.File) error
		n    int
		text string
	}{
		{func(files ...*os.File) error { _, err := methodWrite.Call(t.Context(), a, "x", files...); return err }, 0, "write: 0 files, expected 1 to 2"},
		{func(files ...*os.File) error { _, err := methodWrite.Call(t.Context(), a, "x", files...); return err }, 3, "write: 3 files, expected 1 to 2"},
		{func(files ...*os.File) error { return methodTake.Call(t.Context(), a, nil, files...) }, 1, "take: 1 files, expected 2"},
		{func(files ...*os.File) error { return methodFail.Call(t.Context(), a, "", files...) }, 1, "fail: 1 files, expected 0"},
	} {
		var e *Error
		err := test.call([]*os.File{r, r, r}[:test.n]...)
		if !errors.As(err, &e) || *e != (Error{Code: Usage, Message: test.text}) {
			t.Errorf("%d files: %v, want %q", test.n, err, test.text)
		}
	}
}

// TestBadRequests: the peer says by which request and by what it is wrong, and no handler
// sees it.
func TestBadRequests(t *testing.T) {
	a, _ := pair(t, nil, shapes(nil).Serve) // a handler of "size" would wait for ever
	for name, test := range map[string]struct {
		call func() error
		text string
	}{
		"a method":   {func() error { return NewProcedure[None]("perimeter").Call(t.Context(), a, nil) }, `unknown request "perimeter"`},
		"parameters": {func() error { return NewProcedure[string]("area").Call(t.Context(), a, "x") }, "area: parameters: json: cannot unmarshal string into Go value of type control.rectangle"},
		"a notice":   {func() error { return NewProcedure[int]("size").Call(t.Context(), a, 7) }, "size: parameters: json: cannot unmarshal number into Go value of type control.rectangle"},
	} {
		var e *Error
		if err := test.call(); !errors.As(err, &e) || *e != (Error{Code: Usage, Message: test.text}) {
			t.Errorf("%s: got %v, want %q", name, err, test.text)
		}
	}
	_, err := NewMethod[rectangle, rectangle]("area").Call(t.Context(), a, rectangle{1, 1})
	if err == nil || !strings.HasPrefix(err.Error(), "area: answer: ") {
		t.Errorf("an answer of the wrong type: %v", err)
	}
}

// TestWhen: a handler is called only when each check that stands before it allows so.
func TestWhen(t *testing.T) {
	var checked []string
	var refusing string
	check := func(name string) func() error {
		return func() error {
			checked = append(checked, name)
			if name == refusing {
				return errors.New("not " + name)
			}
			return nil
		}
	}
	var mux Mux
	built := mux.When(check("built"))
	ready := built.When(check("ready"))
	for name, at := range map[string]*Mux{"any": &mux, "look": built, "change": ready} {
		NewProcedure[None](name).Handle(at, func(context.Context, *Request, None) error {
			checked = append(checked, "done")
			return nil
		})
	}
	for _, test := range []struct{ method, refusing, want string }{
		{"any", "built", "done"},
		{"look", "ready", "built done"},
		{"look", "built", "built: not built"},
		{"change", "", "built ready done"},
		{"change", "ready", "built ready: not ready"},
		{"change", "built", "built: not built"},
	} {
		checked, refusing = nil, test.refusing
		_, err := mux.Serve(t.Context(), &Request{Method: test.method})
		got := strings.Join(checked, " ")
		if err != nil {
			got += ": " + err.Error()
		}
		if got != test.want {
			t.Errorf("%s without %q: %s, want %s", test.method, test.refusing, got, test.want)
		}
	}
}

func TestTwoHandlers(t *testing.T) {
	mux := shapes(nil)
	defer func() {
		if got := recover(); got != `control: "area" has a handler already` {
			t.Errorf("got %v", got)
		}
	}()
	NewNotice[int]("area").Handle(mux.When(func() error { return nil }), func(context.Context, *Request, int) error { return nil })
	t.Error("a mux has two handlers of one name")
}

// FuzzMux has a peer say anything: nothing panics, a handler is called with what fits its
// type, and what is refused is refused with the code of a mistake.
func FuzzMux(f *testing.F) {
	for _, seed := range []struct{ method, params string }{
		{"area", `{"Width":1,"Height":2}`}, {"area", `[]`}, {"area", ``}, {"about", `{`}, {"about", ``},
		{"size", `{"Width":"x"}`}, {"fail", `""`}, {"write", `"x"`}, {"", `null`}, {"perimeter", `7`},
	} {
		f.Add(seed.method, seed.params)
	}
	f.Fuzz(func(t *testing.T, method, params string) {
		sizes := make(chan rectangle, 1)
		_, err := shapes(sizes).Serve(t.Context(), &Request{Method: method, Params: json.RawMessage(params)})
		var e *Error
		switch {
		case errors.As(err, &e):
			if e.Code != Usage && method != "area" {
				t.Errorf("%s(%s): %s, %v", method, params, e.Code, err)
			}
		case err != nil && method != "fail":
			t.Errorf("%s(%s): %v", method, params, err)
		case err == nil && method != "about" && !json.Valid([]byte(params)):
			t.Errorf("%s took %q", method, params)
		}
	})
}

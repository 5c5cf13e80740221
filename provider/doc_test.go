package provider_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// The types that the package documentation names, alone or with a method.
var documented = map[string]reflect.Type{
	"Miniport": reflect.TypeFor[*provider.Miniport](), "Adapter": reflect.TypeFor[*provider.Adapter](),
	"CQ": reflect.TypeFor[*provider.CQ](), "PD": reflect.TypeFor[*provider.PD](),
	"MR": reflect.TypeFor[*provider.MR](), "MW": reflect.TypeFor[*provider.MW](),
	"QP": reflect.TypeFor[*provider.QP](), "SRQ": reflect.TypeFor[*provider.SRQ](),
	"Connector": reflect.TypeFor[*provider.Connector](), "Listener": reflect.TypeFor[*provider.Listener](),
	"SharedEndpoint":   reflect.TypeFor[*provider.SharedEndpoint](),
	"CreateCompletion": reflect.TypeFor[provider.CreateCompletion](), "RequestCompletion": reflect.TypeFor[provider.RequestCompletion](),
	"CloseCompletion": reflect.TypeFor[provider.CloseCompletion](), "CQNotification": reflect.TypeFor[provider.CQNotification](),
	"SRQNotification": reflect.TypeFor[provider.SRQNotification](), "ConnectEvent": reflect.TypeFor[provider.ConnectEvent](),
	"DisconnectEvent": reflect.TypeFor[provider.DisconnectEvent](), "DisconnectEventEx": reflect.TypeFor[provider.DisconnectEventEx](),
}

// specified are the functions, callbacks and OIDs of ndkpi.md section 4, in order.
func specified(t *testing.T) (functions, callbacks, oids []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/spec/ndkpi.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## 4. Functions")
	section, _, _ = strings.Cut(section, "\n### 4.15 ")
	section, last, _ := strings.Cut(section, "\n### 4.14 ")
	section, calls, _ := strings.Cut(section, "\n### 4.13 ")
	names := func(pattern, text string) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		return names
	}
	return names(`\*\*((?:Ndk|OpenNDK|CloseNDK)\w+)\*\*`, section), names(`(?m)^\| (Ndk\w+)`, calls), names(`(?m)^\| (OID_\w+)`, last)
}

// TestFunctionTable: the package documentation says of every function of the
// interface, in order, what it is here, and nothing that is not.
func TestFunctionTable(t *testing.T) {
	functions, callbacks, oids := specified(t)
	if len(functions) != 55 || len(callbacks) != 8 || len(oids) != 4 {
		t.Fatalf("%d functions, %d callbacks and %d OIDs are specified", len(functions), len(callbacks), len(oids))
	}
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	table := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		row, ok := strings.CutPrefix(line, "//\t")
		switch {
		case !ok:
		case strings.HasPrefix(row, " "): // goes on with the function before
			table[order[len(order)-1]] += row
		default:
			function, rest, _ := strings.Cut(row, " ")
			order = append(order, function)
			table[function] = rest
		}
	}
	want := append(append(functions, callbacks...), oids...)
	if !reflect.DeepEqual(order, want) {
		t.Errorf("the table has\n%v, want\n%v", order, want)
	}
	for function, here := range table {
		names := regexp.MustCompile(`[A-Z]\w+(\.\w+)?`).FindAllString(here, -1)
		if len(names) == 0 {
			t.Errorf("%s is nothing here", function)
		}
		for _, name := range names {
			typ, method, ofType := strings.Cut(name, ".")
			known, ok := documented[typ]
			if ok && ofType {
				_, ok = known.MethodByName(method)
			}
			if !ok {
				t.Errorf("%s: there is no %s", function, name)
			}
		}
	}
}

// TestDispatchIsDocumented: every function of the dispatch tables is somewhere in
// the table of the documentation.
func TestDispatchIsDocumented(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, typ := range documented {
		if typ.Kind() != reflect.Pointer {
			continue
		}
		field, ok := typ.Elem().FieldByName("Dispatch")
		if !ok {
			continue // a Miniport
		}
		for i := range field.Type.NumMethod() {
			if method := field.Type.Method(i).Name; method != "QueryExtension" && !strings.Contains(string(text), name+"."+method) {
				t.Errorf("%s.%s is not in the table", name, method)
			}
		}
	}
}

// TestTrapsAreReal: the documentation speaks of traps that ndkpi.md has.
func TestTrapsAreReal(t *testing.T) {
	spec, err := os.ReadFile("../docs/spec/ndkpi.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	traps := regexp.MustCompile(`\bT\d+\b`).FindAllString(string(text), -1)
	if len(traps) < 40 {
		t.Errorf("only %d traps", len(traps))
	}
	for _, trap := range traps {
		if !strings.Contains(string(spec), "\n| "+trap+" |") {
			t.Errorf("there is no %s", trap)
		}
	}
}

package token

import "testing"

// TestTable: a token finds its thing until it is given up, and the next one of the slot is another.
func TestTable(t *testing.T) {
	var table Table[int]
	if table.At(0) != nil || table.At(1<<KeyBits) != nil {
		t.Error("an empty table has something")
	}
	thing := 7
	token, ok := table.Take()
	if !ok || token>>KeyBits == 0 {
		t.Fatalf("%#x, %t", token, ok)
	}
	table.Set(token, &thing)
	if table.At(token) != &thing || table.InUse() != 1 {
		t.Error("not found")
	}
	table.Give(token)
	if table.At(token) != nil || table.InUse() != 0 {
		t.Error("found after it was given up")
	}
	table.Leave(1)
	if other, ok := table.Take(); !ok || other == token {
		t.Errorf("%#x, %t", other, ok)
	}
	if again, ok := table.Take(); !ok || again != Next(token) || again>>KeyBits != token>>KeyBits {
		t.Errorf("the slot's next token is %#x, %t, after %#x", again, ok, token)
	}
	if last, ok := table.Take(); ok {
		t.Errorf("%#x, of a table that is full", last)
	}
}

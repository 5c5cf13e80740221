package lab

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
)

// A Condition is a state of a lab that commands can wait for. The zero value is none.
type Condition struct {
	State    string // Ready or Down, of the lab or a node; or
	Workload string // the name of one that is to be done; or
	Counter  string // an NDIS or transport counter, which is to compare with Value
	Relation string // of Counter: one of >=, >, ==, <=, <
	Value    uint64
}

// Down is the state of a lab of which nothing is left, and of a node without agent.
const Down = "down"

var counterCondition = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_]*) *(>=|<=|==|>|<) *([0-9]+)$`)
})

// ParseCondition reads a condition: ready, down, workload=NAME, or a counter with its
// bound, such as Connect>=2.
func ParseCondition(text string) (Condition, error) {
	if text == Ready || text == Down {
		return Condition{State: text}, nil
	}
	if name, ok := strings.CutPrefix(text, "workload="); ok && name != "" {
		return Condition{Workload: name}, nil
	}
	if m := counterCondition().FindStringSubmatch(text); m != nil {
		value, err := strconv.ParseUint(m[3], 10, 64)
		if err != nil {
			return Condition{}, control.Errorf(control.Usage, "%q: %s is more than a counter can be", text, m[3])
		}
		return Condition{Counter: m[1], Relation: m[2], Value: value}, nil
	}
	return Condition{}, control.Errorf(control.Usage, "%q is no condition, expected ready, down, workload=NAME, or a counter with one of >=, >, ==, <=, < and a number, such as Connect>=2", text)
}

// String is the condition as ParseCondition reads it.
func (c Condition) String() string {
	switch {
	case c.Workload != "":
		return "workload=" + c.Workload
	case c.Counter != "":
		return fmt.Sprintf("%s%s%d", c.Counter, c.Relation, c.Value)
	}
	return c.State
}

// holds reports whether the counter's value is as wanted.
func (c Condition) holds(value uint64) bool {
	switch c.Relation {
	case ">=":
		return value >= c.Value
	case ">":
		return value > c.Value
	case "==":
		return value == c.Value
	case "<=":
		return value <= c.Value
	default:
		return value < c.Value
	}
}

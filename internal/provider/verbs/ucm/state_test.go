package ucm

import (
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// TestStates tries every action in every state.
func TestStates(t *testing.T) {
	allowed := map[state]map[action]state{
		idle:            {doBind: bound},
		bound:           {doResolveAddress: addressResolved, doListen: listening},
		addressResolved: {doResolveRoute: routeResolved},
		routeResolved:   {doConnect: connecting},
		connecting:      {doDisconnect: disconnected},
	}
	for s := idle; s <= listening; s++ {
		for a := doBind; a <= doDisconnect; a++ {
			next, ok := s.after(a)
			want, wanted := allowed[s][a]
			if ok != wanted || ok && next != want {
				t.Errorf("action %d in state %d leads to %d, %v", a, s, next, ok)
			}
		}
	}
}

// TestAckTimeout compares with the rule of IBTA Vol. 1, 12.7.34, as roce.md 10.6 has it.
func TestAckTimeout(t *testing.T) {
	for _, c := range []struct{ delay, lifeTime, want int }{
		{15, 16, 17}, {16, 16, 18}, {0, 16, 17}, {15, 18, 19}, {17, 16, 18}, {18, 16, 19}, {19, 16, 19}, {31, 30, 31}, {31, 31, 31},
	} {
		if got := ackTimeout(mad.Timeout(c.delay), mad.Timeout(c.lifeTime)); int(got) != c.want {
			t.Errorf("delay %d, life time %d: %d, not %d", c.delay, c.lifeTime, got, c.want)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A test that needs the whole command runs this program again, with this variable.
const commandVariable = "LOAD_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func optionsFor(addresses ...string) options {
	return options{
		address: strings.Join(addresses, ","), topic: "T", notation: "json",
		connections: 3, window: 4, batch: 1, size: 64, queues: 2, pullCount: 32, rate: 1000,
		duration: 20 * time.Second, patience: 5 * time.Second,
	}
}

// sent has a load sent and returns its totals.
func sent(t *testing.T, o options) (acknowledged, timed int, all refusals) {
	t.Helper()
	senders := make([]*sender, o.connections)
	for number := range senders {
		senders[number] = newSender(o, number)
	}
	if _, err := converse(o, senders); err != nil {
		t.Fatal(err)
	}
	for _, one := range senders {
		acknowledged += one.acknowledged
		timed += len(one.took) * o.batch
		all.add(one.refusals)
	}
	return acknowledged, timed, all
}

func TestEachAnswerIsCountedOnce(t *testing.T) {
	for name, kind := range map[string]habits{
		"at once":          {},
		"slowly":           {delay: time.Millisecond},
		"byte by byte":     {piece: 1},
		"across headers":   {piece: 50, backwards: 4},
		"last one first":   {backwards: 4},
		"some are refused": {refuseEvery: 3},
	} {
		for _, notation := range []string{"json", "rocketmq"} {
			for _, batch := range []int{1, 8} {
				broker := newFakeBroker(t, kind)
				o := optionsFor(broker.address)
				// A multiple of what is kept of each connection, so that nothing is kept for ever.
				o.notation, o.batch, o.count = notation, batch, 96*batch
				acknowledged, timed, all := sent(t, o)
				came := broker.seen()
				if timed != o.count || acknowledged+all.count != o.count || all.count != came.refused*batch {
					t.Errorf("%s, %s, %d: %d of %d were timed, %d acknowledged, %d refused",
						name, notation, batch, timed, o.count, acknowledged, all.count)
				}
				if came.asked != 96 || came.different != acknowledged {
					t.Errorf("%s, %s, %d: %+v", name, notation, batch, came)
				}
			}
		}
	}
}

func TestNumbersBeginAgainBeforeTheyAreTooLong(t *testing.T) {
	broker := newFakeBroker(t, habits{})
	one := newSender(optionsFor(broker.address), 0)
	for place := range one.window {
		one.window[place].number = numberLimit - 2*len(one.window) + place
	}
	o := optionsFor(broker.address)
	o.connections, one.left = 1, 20
	if _, err := converse(o, []*sender{one}); err != nil || one.acknowledged != 20 {
		t.Errorf("%d acknowledged: %v", one.acknowledged, err)
	}
}

func TestConnectionsAreSpreadOverSeveralBrokers(t *testing.T) {
	first, second := newFakeBroker(t, habits{}), newFakeBroker(t, habits{})
	o := optionsFor(first.address, second.address)
	o.count = 90
	sent(t, o)
	if one, other := first.seen().asked, second.seen().asked; one != 60 || other != 30 {
		t.Errorf("of three connections one broker got %d requests, the other %d", one, other)
	}
}

func TestAConnectionWithoutARequestIsOver(t *testing.T) {
	broker := newFakeBroker(t, habits{})
	o := optionsFor(broker.address)
	o.count = 1
	if acknowledged, _, _ := sent(t, o); acknowledged != 1 {
		t.Errorf("%d were acknowledged", acknowledged)
	}
}

func TestWhatAFullSocketLeavesIsWrittenLater(t *testing.T) {
	broker := newFakeBroker(t, habits{deaf: 100 * time.Millisecond})
	o := optionsFor(broker.address)
	// More than sockets hold.
	o.connections, o.window, o.size, o.count = 2, 24, 1<<20, 100
	acknowledged, timed, _ := sent(t, o)
	if came := broker.seen(); acknowledged != 100 || timed != 100 || came.different != 100 {
		t.Errorf("%d acknowledged, %d timed, %+v", acknowledged, timed, came)
	}
}

func TestALatencyIsAtLeastWhatTheBrokerTakes(t *testing.T) {
	delay := 20 * time.Millisecond
	broker := newFakeBroker(t, habits{delay: delay})
	o := optionsFor(broker.address)
	o.window, o.count = 1, 9
	made, err := send(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p50_us", "p99_us", "p999_us", "worst_us"} {
		if took := made[name].(float64); took < float64(delay.Microseconds()) {
			t.Errorf("%s is %.0f", name, took)
		}
	}
}

func TestAnAnswerToNothingIsAnError(t *testing.T) {
	broker := newFakeBroker(t, habits{repeats: 1})
	for name, run := range map[string]func(options) (result, error){"send": send, "pull": pull} {
		if _, err := run(optionsFor(broker.address)); err == nil || !strings.Contains(err.Error(), "not under way") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAClosedConnectionIsAnError(t *testing.T) {
	broker := newFakeBroker(t, habits{closeAfter: 5, queueSize: 1000})
	for name, run := range map[string]func(options) (result, error){"send": send, "pull": pull} {
		_, err := run(optionsFor(broker.address))
		if err == nil || !strings.Contains(err.Error(), broker.address+" has closed the connection") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestABrokerThatStopsAnsweringEndsTheLoad(t *testing.T) {
	broker := newFakeBroker(t, habits{hushAfter: 2, queueSize: 1000})
	for name, run := range map[string]func(options) (result, error){
		"12 answers are missing": send, "2 answers are missing": pull,
	} {
		o := optionsFor(broker.address)
		o.duration, o.patience = time.Second, 50*time.Millisecond
		if _, err := run(o); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("instead of %q: %v", name, err)
		}
	}
}

func TestTheTimeEndsALoad(t *testing.T) {
	broker := newFakeBroker(t, habits{delay: time.Millisecond})
	o := optionsFor(broker.address)
	o.duration = 500 * time.Millisecond
	acknowledged, timed, _ := sent(t, o)
	if came := broker.seen(); acknowledged == 0 || acknowledged != timed || acknowledged != came.asked {
		t.Errorf("%d acknowledged, %d timed, %+v", acknowledged, timed, came)
	}
}

func TestAPullReadsAllAndBeginsAgain(t *testing.T) {
	for _, notation := range []string{"json", "rocketmq"} {
		broker := newFakeBroker(t, habits{queueSize: 1000, piece: 1000, delay: time.Millisecond})
		o := optionsFor(broker.address)
		o.notation = notation
		one := &puller{frames: newPullFrames(o, "G", 0)}
		o.duration = 500 * time.Millisecond
		if _, err := converse(o, []*puller{one}); err != nil {
			t.Fatal(err)
		}
		// 31 full answers, one with the rest, one that says that there is no more.
		asked := broker.seen().asked
		rounds, rest := asked/33, asked%33
		expected := 1000*rounds + min(32*rest, 1000)
		if one.messages != expected || one.volume != 100*expected || one.refusals.count != 0 || rounds == 0 {
			t.Errorf("%s: %d messages with %d bytes in %d pulls, %d refused",
				notation, one.messages, one.volume, asked, one.refusals.count)
		}
	}
}

func TestRefusedPullsAreCounted(t *testing.T) {
	broker := newFakeBroker(t, habits{queueSize: 1000, refuseEvery: 2, delay: time.Millisecond})
	o := optionsFor(broker.address)
	o.duration = 500 * time.Millisecond
	made, err := pull(o)
	if came := broker.seen(); err != nil || made["failed"] != came.refused || came.refused == 0 {
		t.Errorf("%v of %+v were refused: %v", made["failed"], came, err)
	}
}

func TestAnswersAreCutWhereverReadsEnd(t *testing.T) {
	chance := rand.New(rand.NewSource(1))
	var wire []byte
	sizes := make([]int, 300)
	for number := range sizes {
		sizes[number] = chance.Intn(1 << chance.Intn(19))
		asked := askedFor{opaque: opaqueBase + number, isBinary: number%2 == 0}
		wire = append(wire, asked.answered(number%3, make([]byte, sizes[number]))...)
	}
	var stream answerStream
	cut := 0
	for len(wire) > 0 {
		count := copy(stream.room(), wire[:min(len(wire), 1+chance.Intn(readSize))])
		stream.filled(count)
		wire = wire[count:]
		for {
			got, isWhole, err := stream.next()
			if err != nil {
				t.Fatal(err)
			}
			if !isWhole {
				break
			}
			if got.number != cut || got.code != cut%3 || len(got.body) != sizes[cut] {
				t.Fatalf("answer %d has number %d, code %d, %d bytes", cut, got.number, got.code, len(got.body))
			}
			cut++
		}
	}
	if cut != len(sizes) {
		t.Errorf("%d answers", cut)
	}
}

func TestWhatIsNoAnswerIsAnError(t *testing.T) {
	for name, wire := range map[string][]byte{
		"header longer than frame": {0, 0, 0, 5, 0, 0, 9, 0, 1},
		"too long":                 {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1},
		"shorter than a prefix":    {0, 0, 0, 1, 0, 0, 0, 0},
		"short binary header":      {0, 0, 0, 6, 1, 0, 0, 2, 0, 0},
	} {
		var stream answerStream
		stream.filled(copy(stream.room(), wire))
		if _, _, err := stream.next(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTheCommandTellsWhatItMeasuredOrWhyNot(t *testing.T) {
	common := []string{"msgs_per_s", "failed", "mode"}
	times := []string{"p50_us", "p99_us", "p999_us", "worst_us"}
	for name, one := range map[string]struct {
		kind habits
		mode string
		keys []string
		told string
	}{
		"sends":          {habits{}, "send", append(times, common...), ""},
		"pulls":          {habits{queueSize: 1000}, "pull", append([]string{"mb_per_s"}, common...), ""},
		"refused sends":  {habits{refuseEvery: 3}, "send", common, "were refused, the first with code 2"},
		"a closed line":  {habits{closeAfter: 9}, "send", nil, "has closed the connection"},
		"a closed queue": {habits{closeAfter: 9}, "pull", nil, "has closed the connection"},
	} {
		one.kind.delay = time.Millisecond
		broker := newFakeBroker(t, one.kind)
		command := exec.Command(os.Args[0], one.mode, "-addr", broker.address, "-seconds", "0.5")
		command.Env = append(os.Environ(), commandVariable+"=1")
		var out, told bytes.Buffer
		command.Stdout, command.Stderr = &out, &told
		err := command.Run()
		var ended *exec.ExitError
		if isError := errors.As(err, &ended); isError != (one.keys == nil) || !strings.Contains(told.String(), one.told) {
			t.Errorf("%s: %v, %s", name, err, told.String())
		}
		if one.keys == nil {
			continue
		}
		var made map[string]any
		if err := json.Unmarshal(out.Bytes(), &made); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, key := range one.keys {
			if made[key] == nil {
				t.Errorf("%s: there is no %s in %v", name, key, made)
			}
		}
	}
}

func TestABrokerThatIsNotThereIsAnError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	if _, err := send(optionsFor(address)); err == nil || !strings.Contains(err.Error(), address) {
		t.Error(err)
	}
}

package advise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxScrape bounds one answer of /metrics.
const maxScrape = 16 << 20

// The metrics that are read, of internal/app, and the tags that count.
const (
	metricAnswers = "holdover_answers_total"
	metricPeak    = "holdover_hottest_item_peak_rate"
	metricHolds   = "holdover_mysql_connection_holds_total"
	metricHeld    = "holdover_mysql_connection_hold_seconds_total"
)

var (
	reserveTags = []string{"reserve", "vote", "apply held"}
	claimTags   = []string{"claim", "apply claimed"}
)

// Sample is what one instance's /metrics said at one moment.
type Sample struct {
	at     time.Time
	series []series
}

type series struct {
	name   string
	labels map[string]string
	value  float64
}

// Scrape reads baseURL/metrics. The client's timeout bounds it.
func Scrape(ctx context.Context, client *http.Client, baseURL string) (Sample, error) {
	url := strings.TrimSuffix(baseURL, "/") + "/metrics"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Sample{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return Sample{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Sample{}, fmt.Errorf("%s answered %s: is it the address of a holdover instance?", url, resp.Status)
	}
	s, err := parse(io.LimitReader(resp.Body, maxScrape))
	if err != nil {
		return Sample{}, fmt.Errorf("%s: %w", url, err)
	}
	s.at = time.Now()
	if len(s.Pods()) == 0 {
		return Sample{}, fmt.Errorf("%s has no metrics of a holdover pod: is it the address of an instance of this version?", url)
	}
	return s, nil
}

var (
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)`)
	labelPair  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
	unescape   = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
)

// parse reads the text form of an exposition; only holdover's own series are kept.
func parse(r io.Reader) (Sample, error) {
	var s Sample
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "holdover_") {
			continue
		}
		parts := sampleLine.FindStringSubmatch(line)
		if parts == nil {
			return s, fmt.Errorf("a metric can't be read: %.80q", line)
		}
		value, err := strconv.ParseFloat(parts[3], 64)
		if err != nil {
			return s, fmt.Errorf("a metric has no number: %.80q", line)
		}
		labels := map[string]string{}
		for _, pair := range labelPair.FindAllStringSubmatch(parts[2], -1) {
			labels[pair[1]] = unescape.Replace(pair[2])
		}
		s.series = append(s.series, series{parts[1], labels, value})
	}
	return s, lines.Err()
}

// Pods names the pods in the sample, sorted.
func (s Sample) Pods() []string {
	var pods []string
	for _, one := range s.series {
		if one.name == metricPeak {
			pods = append(pods, one.labels["pod"])
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// sum adds up a metric's series of one pod; with values, only those whose label
// has one of them.
func (s Sample) sum(name, pod, label string, values ...string) (total float64) {
	for _, one := range s.series {
		if one.name == name && one.labels["pod"] == pod && (len(values) == 0 || slices.Contains(values, one.labels[label])) {
			total += one.value
		}
	}
	return total
}

// Pair is one instance, looked at twice.
type Pair struct{ Before, After Sample }

// FromPod works out a pod's numbers from its instances, each looked at twice.
// Peaks of instances add up: what all of them had at once would have been that.
func FromPod(pod string, instances []Pair) (Numbers, error) {
	var n Numbers
	var reserves, reserveHeld, claims, claimHeld float64
	for _, p := range instances {
		seconds := p.After.at.Sub(p.Before.at).Seconds()
		if seconds <= 0 {
			return n, errors.New("the two looks at the pod are at one moment: give them some seconds")
		}
		rate := func(name, label string, values ...string) (float64, error) {
			d := p.After.sum(name, pod, label, values...) - p.Before.sum(name, pod, label, values...)
			if d < 0 {
				return 0, fmt.Errorf("pod %s: %s went down: the instance began anew between the two looks; try again", pod, name)
			}
			return d / seconds, nil
		}
		n.PeakRate += p.After.sum(metricPeak, pod, "")
		for _, part := range []struct {
			into   *float64
			metric string
			label  string
			values []string
		}{
			{&n.Rate, metricAnswers, "answer", []string{"granted", "refused"}},
			{&n.ConnectionsNow, metricHeld, "tag", nil},
			{&reserves, metricAnswers, "answer", []string{"granted"}},
			{&reserveHeld, metricHeld, "tag", reserveTags},
			{&claims, metricHolds, "tag", claimTags},
			{&claimHeld, metricHeld, "tag", claimTags},
		} {
			r, err := rate(part.metric, part.label, part.values...)
			if err != nil {
				return n, err
			}
			*part.into += r
		}
	}
	n.OtherConnections, n.RateNow = n.ConnectionsNow-reserveHeld, n.Rate
	if reserves > 0 {
		n.HoldAfter = time.Duration(reserveHeld / reserves * float64(time.Second))
	}
	if claims > 0 {
		n.RowHold = time.Duration(claimHeld / claims * float64(time.Second))
		n.RowHoldIsBound = true
	}
	return n, nil
}

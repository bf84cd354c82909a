package holdover

// SnapshotPage is a part of one consistent state of a pod's MySQL: what it shows
// was true at one moment, whatever buyers do while its pages are read. A page has
// one kind of content.
type SnapshotPage struct {
	Fence    *Fence      // first
	Stocks   []Stock     // the ledger by location; only ids and Available are set
	Holds    []Hold      // live ones and ended ones
	Journal  []Journaled // rows of the journal, with what their holds were then
	Adjusted []Adjusted  // adjustments that Redis has not followed
}

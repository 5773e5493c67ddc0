package logtest

// Cases is the whole suite.
var Cases = []Case{
	{"the first cut is the complete state", completeFirst},
	{"a live change reaches every consumer", liveChange},
	{"equal bytes are not published", equalBytes},
	{"changes of one append arrive as one cut", oneCut},
	{"a cut beyond a batch's limits arrives whole", bigCut},
	{"a cut beyond all limits arrives by snapshot", hugeCut},
	{"a row too large is left out and named", largeRow},
	{"tables of a later version are carried", laterTable},
	{"a slow consumer gets merged cuts and delays nobody", slowConsumer},
	{"a second consumer is refused", secondConsumer},
	{"the trace crosses the bus", traceCrosses},

	{"a lost batch is found by the next", lostBatch},
	{"a lost last batch is found by the beacon", lostLast},
	{"a lost part of a cut is found", lostPart},
	{"many lost batches come as a snapshot", lostMany},
	{"a repeated batch is dropped", repeated},
	{"batches out of order are put in order", reordered},
	{"an unreadable batch is healed", unreadable},
	{"dropped messages of a slow connection are found", slowConnection},
	{"a writer without a connection loses nothing", muteWriter},

	{"a batch of an old epoch is dropped", oldEpoch},
	{"a new leader publishes the difference, deletions included", failover},
	{"readers at the end of the old epoch go on without asking", failoverGoesOn},
	{"a paused old leader changes nobody", pausedLeader},
	{"a writer that resigned writes nothing", resigned},
	{"a leader without predecessor state starts with a snapshot", freshLeader},

	{"a peer serves the snapshot while the writer is gone", peerSnapshot},
	{"another peer goes on when one dies half-way", peerDies},
	{"a peer that is behind says so", behindPeer},
	{"a corrupt copy is found, named and healed", corruptCopy},
	{"a resume with nothing changed costs some bytes", resume},
	{"presence and the roll", presence},
	{"wanted statuses come page by page from who knows enough", statuses},

	{"a reader of some tables holds only those", narrow},
	{"a reader of some tables repairs them and no others", narrowRepairs},
	{"a reader of some tables finds and heals damage in them", narrowHeals},
	{"a reader of some tables answers nobody", narrowIsSilent},
}

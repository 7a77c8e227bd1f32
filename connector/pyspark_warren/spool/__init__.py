"""The spool: messages of a queue as Arrow files, numbered, so that Spark can read a batch again.

An AMQP broker has no positions that one could read from twice. So a receiver process takes the
messages of a queue, appends them to its **lane** of the spool, and acknowledges them when Spark has
committed them (or when they are spooled). A row's **position** is the number of rows before it in
the lane, for ever.

One lane has one owner. A queue has one lane and one receiver process, however many channels that
process consumes with: two owners could both have received a message (the first one before its
connection failed, the second one after that), and neither could know of the other's row.

Files, below `<location>/<reader>/`; each is written once and never changed:

    spool.json                                      which queue and reader the spool is of
    <lane>/claims/epoch-<n>-<token>.claim           a receiver wants to own the lane
    <lane>/epoch-<n>-<token>.json                   it owns it: the valid files that it found
    <lane>/<first>-<rows>-<n>-<token>.arrow         rows from position `first`, with identities
    <lane>/<first>-<rows>-<n>-<token>.settled       identities of rows that Spark has committed
    tries/<batch>.<n>.…                             batches that were tried before (`tries`)

**Taking over** (`lane.LaneWriter.take_over`): 1. write a claim above all others; 2. list the lane;
3. write the roster, the `.json`, with the valid files; 4. list the claims: a higher one means that
another receiver has the lane. Epochs are ordered by (n, token). The valid files are those on the
roster of the highest epoch that has one, as far as they exist, and those of that epoch itself.

**Why nothing acknowledged is lost.** Before anything is acknowledged the owner lists the claims:
after each file, and after its roster (step 4), because a redelivered message that it recognises is
acknowledged without a new file. If it sees no higher claim, then every later owner writes its claim
after that, lists the lane after its claim, and so lists the file (or the roster). This needs
listings that show what was written before (local file systems, HDFS, S3, GCS, Azure; not NFS with
cached directories). A file that was written after the successor's listing is on no roster; its
writer sees the claim, and acknowledges nothing.

**Why no row moves.** A file goes only after a `.settled` file that covers it is written and after
the claims were listed once more: a successor either sees that mark, or wrote its claim after this
listing and sees it too. Without the mark a lane with all its files settled would begin again at a
position that Spark has passed, and Spark would never read those rows.

**Why no row is doubled**: `spool.recognise`.

A write that failed may still take effect later (a request to an object store that timed out). So a
writer is broken after its first failed write, and the lane has to be taken over again: the late
file is of an older epoch, and on no roster.
"""

# Starts a program, feeds it from frames on standard input (four bytes of length, then as many bytes), and passes on its
# output. An empty frame is the end of the program's input, which the websockets of older clusters cannot signal; the end of
# the frames ends the program. The feeder ends with the program's exit code, or 128 plus the number of a signal, even if other
# processes keep the program's streams open: a cluster's runtime reports no end while any process does.
use strict;
use warnings;
use Config;

my $ROOM     = 1 << 16;
my $ALL      = 1 << 20;    # maximum bytes in a pipe
my $ATOM     = 4096;       # bytes that a pipe takes without blocking, if it takes any
my $POLL     = 1;          # seconds after which it checks without a signal whether the program has ended
my $NOTHING  = 0.5;        # seconds to wait for input if the program ended before any input came
my $SILENCE  = 5;          # the same if it ended in the middle of its input, or the end of its input will come
my $PATIENCE = 30;         # seconds that the last output waits until it is read
$0 = 'feeder';

# The first argument: "fed" if an end of the input will come. `%filters`: for each machine, its number of prctl, and its
# system call filter in hexadecimal digits.
my $fed = shift eq 'fed';
our %filters;

# Only a process itself can set its filter; without privileges it can do so once it cannot gain any.
sub filter_calls {
    my ($machine) = $Config{archname} =~ /^([^-]+)/;
    my ($prctl, $filter) = @{ $filters{$machine} // die "no system call filter for $machine\n" };
    $filter = pack 'H*', $filter;
    my $program = pack 'S x![P] P', length($filter) / 8, $filter;
    syscall($prctl, 38, 1, 0, 0, 0) == 0 && syscall($prctl, 22, 2, $program) == 0
        or die "cannot filter system calls: $!\n";    # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP with SECCOMP_MODE_FILTER
}

pipe(my $woken, my $wake) && pipe(my $input, my $feed) && pipe(my $printed, my $out) && pipe(my $complained, my $err)
    or die "no pipe: $!\n";
# Like the agent, it ignores signals that the program can send to all processes without ending itself.
my @ignored = grep { !/^(KILL|STOP|CL?H?LD|NUM3[23]|ZERO)$/ } keys %SIG;
@SIG{@ignored} = ('IGNORE') x @ignored;
$SIG{CHLD} = sub { syswrite $wake, '.' };
my $child = fork // die "no process: $!\n";
unless ($child) {
    @SIG{ @ignored, 'CHLD' } = ('DEFAULT') x (@ignored + 1);
    setpgrp;
    open STDIN, '<&', $input and open STDOUT, '>&', $out and open STDERR, '>&', $err or die "no streams: $!\n";
    filter_calls();
    exec { $ARGV[0] } @ARGV or die "cannot start: $!\n";
}
close $_ for $input, $out, $err;
setpgrp $child, $child;    # the child does the same; whichever comes first

my $frames = '';
my $to     = { to => $feed, data => '' };
my @from   = ({ from => $printed, to => \*STDOUT, data => '' }, { from => $complained, to => \*STDERR, data => '' });

sub unpack_frames {
    while (!$to->{ended} && length $to->{data} < $ROOM && length $frames >= 4) {
        my $size = unpack 'N', $frames;
        last if length $frames < 4 + $size;
        $to->{data} .= substr $frames, 4, $size;
        substr $frames, 0, 4 + $size, '';
        $to->{ended} = !$size;
    }
    close delete $to->{to} if $to->{to} && $to->{ended} && !length $to->{data};
    drop($to);
}

sub give {
    my ($way) = @_;
    my $sent = syswrite $way->{to}, $way->{data}, $ATOM;
    if (defined $sent) { substr $way->{data}, 0, $sent, '' }
    elsif (!$!{EINTR}) { delete $way->{to} }
    drop($way);
}

sub drop {
    my ($way) = @_;
    $way->{data} = '' unless $way->{to};    # no longer read by anyone
}

sub take {
    my ($way, $most) = @_;
    my $got = sysread $way->{from}, $way->{data}, $most, length $way->{data};
    delete $way->{from} if defined $got && !$got;
    drop($way);
}

sub bits {
    my $bits = '';
    vec($bits, fileno $_, 1) = 1 for @_;
    return $bits;
}

# Writes what can be written, and returns which of the other streams can be read; waits for either.
sub wait_for {
    my ($seconds, @reading) = @_;
    my @giving = grep { length $_->{data} } $to, @from;
    my ($readable, $writable) = (bits(@reading), bits(map { $_->{to} } @giving));
    return unless select($readable, $writable, undef, $seconds) > 0;
    give($_) for grep { vec $writable, fileno $_->{to}, 1 } @giving;
    return grep { vec $readable, fileno $_, 1 } @reading;
}

my ($over, $begun, $left, $status) = (0, 0, 0, 0);
until ($over) {
    unpack_frames();
    my @open  = grep { $_->{from} && length $_->{data} < $ROOM } @from;
    my @input = $left || length $to->{data} >= $ROOM ? () : \*STDIN;
    for my $ready (wait_for($POLL, $woken, @input, map { $_->{from} } @open)) {
        if ($ready == $woken) {
            sysread $woken, my ($signals), $ROOM;
        } elsif ($ready == \*STDIN) {
            my $got = sysread STDIN, $frames, $ROOM, length $frames;
            $begun ||= $got;
            $left = defined $got && !$got;
            kill KILL => -$child, $child if $left;
        } else {
            take($_, $ROOM) for grep { $_->{from} && $_->{from} == $ready } @open;
        }
    }
    # Not only after a signal: Perl misses a signal that comes in the moment before it waits.
    $over = waitpid($child, 1) == $child;
}
$status = $? & 127 ? 128 + ($? & 127) : $? >> 8;
my $coming = $fed || !$begun || length $frames || length $to->{data} || wait_for(0, \*STDIN);
$to->{data} = '';
for my $way (grep { $_->{from} } @from) {
    take($way, $ALL) if wait_for(0, $way->{from});
}
# Input that is still in transit to the program is read to its end, or as long as it comes: if the connection were closed
# before, it would be reset, and the exit code lost with it. A program that was waiting for input has none in transit.
delete $to->{to};
while ($coming && !$left) {
    my $held = length $frames;
    $begun ||= $held;
    unpack_frames();
    last if $to->{ended};
    next if length $frames < $held;    # there may be more of them
    my $ready = wait_for($fed || $begun ? $SILENCE : $NOTHING, \*STDIN) // last;
    $left = !sysread STDIN, $frames, $ROOM, length $frames if $ready;
}
1 while (grep { $_->{to} && length $_->{data} } @from) && defined wait_for($PATIENCE);
exit $status;

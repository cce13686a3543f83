# Listens on loopback in a container and carries the connections over its standard input and output, in the frames of
# frames.py. It needs only Debian's perl-base, which every image of the Debian family has.
use strict;
use warnings;
use Errno 'EAGAIN';
use Socket;

my ($most, $window, $payload, $port) = @ARGV;
my %open;    # by number: socket, out (bytes for it), room (bytes it may send), ended, last (END or CLOSE that came)
my $number = 0;
my $in     = '';
$SIG{PIPE} = 'IGNORE';

sub tell_server {    # kind, connection, payload
    my $frame = pack 'aNN/a*', @_;
    for (my $at = 0; $at < length $frame;) {
        $at += syswrite(STDOUT, $frame, length($frame) - $at, $at) // exit;
    }
}

sub hang_up {
    my ($id) = @_;
    my $connection = $open{$id};
    close delete $connection->{socket};
    $connection->{out} = '';
    tell_server('C', $id, '');
    delete $open{$id} if $connection->{last} eq 'C';
}

sub push_out {
    my ($id) = @_;
    my $connection = $open{$id};
    if (length $connection->{out}) {
        my $sent = send $connection->{socket}, $connection->{out}, MSG_DONTWAIT;
        return $! == EAGAIN || hang_up($id) unless defined $sent;
        substr $connection->{out}, 0, $sent, '';
        tell_server('T', $id, pack 'N', $sent);
        return if length $connection->{out};
    }
    shutdown $connection->{socket}, 1 if $connection->{last} eq 'E';
    hang_up($id) if $connection->{last} eq 'C';
}

sub pull_in {
    my ($id) = @_;
    my $connection = $open{$id};
    my $most_now   = $connection->{room} < $payload ? $connection->{room} : $payload;
    my $got        = sysread $connection->{socket}, my ($data), $most_now;
    return hang_up($id) unless defined $got;
    $connection->{ended} = !$got;
    $connection->{room} -= $got;
    tell_server($got ? 'D' : 'E', $id, $data);
}

sub hear_server {
    my ($kind, $id, $data) = @_;
    my $connection = $open{$id} or return;
    $connection->{room} += unpack 'N', $data if $kind eq 'T';
    $connection->{last} = $kind if $kind eq 'E' || $kind eq 'C';
    if (!$connection->{socket}) {
        delete $open{$id} if $kind eq 'C';
        return;
    }
    $connection->{out} .= $data if $kind eq 'D';
    push_out($id) if $kind ne 'T';
}

socket(my $listener, PF_INET, SOCK_STREAM, 0) or die "no socket: $!\n";
bind($listener, sockaddr_in($port, INADDR_LOOPBACK)) or die "cannot bind: $!\n";
listen($listener, $most) or die "cannot listen: $!\n";
tell_server('L', 0, pack 'N', (sockaddr_in(getsockname $listener))[0]);

while (1) {
    my ($readable, $writable) = ('', '');
    vec($readable, fileno(STDIN), 1) = 1;
    vec($readable, fileno($listener), 1) = 1 if keys %open < $most;
    for my $connection (grep { $_->{socket} } values %open) {
        my $place = fileno $connection->{socket};
        vec($readable, $place, 1) = 1
          if $connection->{room} && !$connection->{ended} && $connection->{last} ne 'C';
        vec($writable, $place, 1) = 1 if length $connection->{out};
    }
    next if select($readable, $writable, undef, undef) < 0;

    for my $id (keys %open) {
        my $place = fileno($open{$id}{socket} // next);
        pull_in($id) if vec $readable, $place, 1;
        push_out($id) if $open{$id}{socket} && vec $writable, $place, 1;
    }
    if (vec $readable, fileno($listener), 1 and accept my $socket, $listener) {
        $open{++$number} = { socket => $socket, out => '', room => $window, ended => 0, last => '' };
        tell_server('O', $number, '');
    }
    if (vec $readable, fileno(STDIN), 1) {
        sysread STDIN, $in, 4 * $payload, length $in or exit;
        while (length $in >= 9 && length $in >= 9 + unpack 'x5N', $in) {
            hear_server(unpack 'aNN/a*', $in);
            substr $in, 0, 9 + unpack('x5N', $in), '';
        }
    }
}

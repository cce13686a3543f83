# frozen_string_literal: true

require_relative 'json'

module Sandbox
  # The runner's ends of the pipes: requests in, frames out, and standard streams that survive whatever code does to them.
  class Channel
    Request = Struct.new(:nonce, :cell, :variables, :code, :last)

    FRAME = 4000 # With the head of a frame this stays below PIPE_BUF.
    # High numbers, because code that cleans up closes low ones, and below the usual limit of 1024; the lower ones are for
    # servers that may open fewer files.
    PRIVATE = [1000, 200, 60].freeze
    # The numbers on Linux; the module that defines them would be one more file to load.
    F_DUPFD = 0
    F_GETFL = 3
    F_SETFL = 4
    F_DUPFD_CLOEXEC = 1030
    private_constant :FRAME, :PRIVATE, :F_DUPFD, :F_GETFL, :F_SETFL, :F_DUPFD_CLOEXEC

    def initialize
      @input = move_high($stdin, 'rb')
      @out, @err = [$stdout, $stderr].map { |stream| move_high(stream, 'wb') }
      @null = File.open(File::NULL) { |file| move_high(file, 'rb') }
      # Our own streams on the public descriptors: reopening one is a dup2, whatever the code has done to its streams.
      @public = [0, 1, 2].map { |number| IO.for_fd(number, number.zero? ? 'r' : 'w', autoclose: false) }
      @pending = String.new
      @given = false
      restore
    end

    # Waits for the next request; nil at the end of the input.
    def read
      until (length = @pending.index("\n"))
        @pending << @input.readpartial(1 << 16)
      end
      line = @pending.slice!(0..length).force_encoding(Encoding::UTF_8)
      last = line.delete_suffix!(%(,"last":true}\n))
      line << "}\n" if last
      # The code is now the last key; a quote inside the code would follow a backslash.
      at = line.rindex('},"code":"')
      head = line[0..at]
      code = Json.text(line[at + 10..-4])
      Request.new(head[10, 32], head[/,"cell":(\d+)/, 1], Json.variables(head), code, !last.nil?)
    rescue EOFError
      nil
    end

    # Restores descriptors 0, 1 and 2, and their constants and globals, to the streams from the server.
    def restore
      [[:STDIN, @null], [:STDOUT, @out], [:STDERR, @err]].each_with_index do |(name, private), number|
        block(private)
        @public[number].reopen(private)
        stream = Object.const_get(name)
        # A stream that has read from a given input can still have some of it in its buffer.
        if !stream.is_a?(IO) || stream.closed? || stream.fileno != number || (number.zero? && @given)
          Object.__send__(:remove_const, name)
          stream = Object.const_set(name, IO.for_fd(number, number.zero? ? 'r' : 'w', autoclose: false))
        end
        stream.set_encoding(number.zero? ? Encoding::UTF_8 : nil)
        stream.sync = true
      end
      $stdin = STDIN
      $stdout = STDOUT
      $stderr = STDERR
      @given = false
    end

    # Gives the code a standard input with this text, until `restore`.
    def give(text)
      file = Channel.unnamed_file(text)
      @public[0].reopen(file)
      file.close
      @given = true
    end

    # A file without a name that contains this text, open at its start.
    def self.unnamed_file(text)
      path = File.join(ENV.fetch('HOME'), ".file-#{Process.pid}")
      file = File.open(path, File::RDWR | File::CREAT | File::EXCL, 0o600)
      File.unlink(path)
      file.write(text)
      file.rewind
      file
    end

    # Reports that a request was read.
    def begin(nonce)
      @out.write("\x1e#{nonce}+0\n")
    end

    # Ends the run on both streams.
    def end(nonce, report)
      @err.write("\x1e#{nonce}.0\n")
      report = report.b
      0.step(report.bytesize - 1, FRAME) do |at|
        part = report.byteslice(at, FRAME)
        kind = at + FRAME < report.bytesize ? '+' : '.'
        @out.write("\x1e#{nonce}#{kind}#{part.bytesize}\n".b + part)
      end
    end

    private

    def move_high(stream, mode)
      bases = PRIVATE.dup
      begin
        number = stream.fcntl(F_DUPFD_CLOEXEC, bases.shift)
      rescue Errno::EINVAL
        bases.empty? ? raise : retry
      end
      IO.for_fd(number, mode, autoclose: false).tap { |io| io.sync = true }
    end

    # The flag belongs to the pipe, not to the descriptor: if the code sets it on its own stream, it applies to all.
    def block(stream)
      flags = stream.fcntl(F_GETFL)
      stream.fcntl(F_SETFL, flags & ~IO::NONBLOCK) if flags & IO::NONBLOCK != 0
    end
  end
end

# frozen_string_literal: true

# Starts the Ruby runner: prepares this interpreter, then answers requests until the input ends. The protocol is in
# ../README.md. Nothing here makes a local variable: the code would see the local variables of this file.

require_relative 'channel'
require_relative 'files'
require_relative 'forks'
require_relative 'gems'
require_relative 'guard'
require_relative 'session'

module Sandbox
  DESCRIPTORS_LOST = 71 # the exit status if the code has closed the descriptors to the server

  # The runs of one session.
  class Runs
    def initialize
      @channel = Channel.new
      @guard = Guard.new
      @session = Session.new
      @process = Process.pid
      @workdir = ENV.fetch('SANDBOX_WORKDIR')
      @figures = ENV.fetch('SANDBOX_FIGURES')
    end

    # Answers one request; nil at the end of the input.
    def serve_one
      request = @channel.read or return
      @channel.begin(request.nonce)
      before = [@workdir, @figures].map { |folder| Scan.new(folder) }
      Gems.forget
      error = @guard.run do
        stdin = request.variables.delete('__stdin')
        @channel.give(stdin) if stdin
        @session.run(request)
      end
      interrupted = @guard.interrupted && error.is_a?(Interrupt)
      flush
      print_error(error) if error
      # A child of the code ends where its code ends.
      exit!(exit_code(error)) if Process.pid != @process
      @channel.restore
      @channel.end(request.nonce, report(error, interrupted, *before))
      true
    end

    private

    # Flushes the code's own streams; they may be any object.
    def flush
      [$stdout, $stderr, STDOUT, STDERR].uniq(&:__id__).each { |stream| @guard.run { stream.flush } }
    end

    def print_error(error)
      return if error.is_a?(SystemExit)

      @channel.restore
      require_relative 'errors'
      failure = @guard.run { Errors.print(error) }
      @guard.run { Errors.print_plainly(error) } if failure
    end

    def exit_code(error)
      case error
      when nil then 0
      when SystemExit then error.status & 0xff
      when Interrupt then 130
      else 1
      end
    end

    def report(error, interrupted, files, figures)
      code = exit_code(error)
      made, omitted = files.changes
      drawn, = figures.changes
      result = error ? nil : @session.result
      %({"status":"#{code.zero? ? 'ok' : 'error'}","exit_code":#{code},) +
        %("result":#{result ? Json.quote(result) : 'null'},) +
        %("interrupted":#{interrupted},) +
        %("files":#{Json.list(made)},"files_omitted":#{omitted},"figures":#{Json.list(drawn)}})
    end
  end

  # Exceptions from other threads or signals do not reach the loop: they wait until code runs.
  def self.serve
    Thread.handle_interrupt(Object => :never) do
      runs = Runs.new
      nil while runs.serve_one
    end
    # Not exit: it would wait for the code's threads.
    exit!(0)
  rescue IOError, SystemCallError
    exit!(DESCRIPTORS_LOST)
  end
end

ARGV.clear
$LOAD_PATH.push(ENV.fetch('SANDBOX_WORKDIR')) # last, so that a `json.rb` of the user's shadows nothing
Sandbox.serve

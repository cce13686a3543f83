# frozen_string_literal: true

# Starts the Ruby runner: prepares this interpreter, then answers requests until the input ends. The protocol is in
# ../README.md. Nothing here makes a local variable: the code would see the local variables of this file.

require_relative 'channel'
require_relative 'exits'
require_relative 'files'
require_relative 'forks'
require_relative 'frames'
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
      # Ruby exits in this order: exit blocks, threads, finalizers. Of blocks and finalizers, those registered first
      # are last.
      at_exit { after_exit_blocks if @leaving == Process.pid }
      ObjectSpace.define_finalizer(Runs, proc { after_finalizers if [@leaving, Process.pid].all?(@process) })
      Exits.watch
    end

    # Answers one request; nil at the end of the input, and when this process is to exit as the code's program.
    def serve_one
      @request = @channel.read or return
      @channel.begin(@request.nonce)
      @before = [@workdir, @figures].map { |folder| Scan.new(folder) }
      Gems.forget
      @error = @guard.run { run_cell }
      return leave if @request.last || Process.pid != @process

      note_end(@error)
      print_error(@error) if @error
      die_of(@error) if signal?(@error)
      answer
      true
    end

    def leaving?
      !@leaving.nil?
    end

    # Ends the main script as the code ended.
    def end_script
      if @error.is_a?(SyntaxError)
        print_error(@error)
        exit(1)
      end
      raise @error if @error
    end

    private

    def run_cell
      stdin = @request.variables.delete('__stdin')
      @channel.give(stdin) if stdin
      Exits.expect(@request.code, @request.last)
      @session.run(@request)
    ensure
      Exits.end_cell
    end

    # A child that the code forked exits like a program, too.
    def leave
      @leaving = Process.pid
      @guard.stay_open
      nil
    end

    # Ruby has already printed the errors of exit blocks, and prints the one of the main script after this.
    def after_exit_blocks
      last = $! # decides the exit code
      Thread.handle_interrupt(Object => :never) do
        @guard.close
        note_end(last)
        @channel.restore
        die_of(last) if signal?(last)
        require_relative 'errors' if @error
        @guard.run { Errors.prepare(@error) } if @error
        @error = last
      end
    end

    def after_finalizers
      answer
      nil while @channel.read
      exit!(0)
    rescue IOError, SystemCallError
      exit!(DESCRIPTORS_LOST)
    end

    def note_end(error)
      @interrupted = @guard.interrupted && error.is_a?(Interrupt)
      # Flushes the code's own streams; they may be any object.
      [$stdout, $stderr, STDOUT, STDERR].uniq(&:__id__).each { |stream| @guard.run { stream.flush } }
    end

    def print_error(error)
      return if error.is_a?(SystemExit) || signal?(error)

      @channel.restore
      require_relative 'errors'
      failure = @guard.run { Errors.print(error) }
      @guard.run { Errors.print_plainly(error) } if failure
    end

    # Whether an error ends Ruby by a signal. SIGINT ends only the run: the server sends it at the deadline.
    def signal?(error)
      error.is_a?(SignalException) && !error.is_a?(Interrupt)
    end

    def die_of(error)
      trap(error.signo, 'SYSTEM_DEFAULT')
      Process.kill(error.signo, Process.pid)
      sleep
    end

    def exit_code(error)
      case error
      when nil then 0
      when SystemExit then error.status & 0xff
      when Interrupt then 130
      else 1
      end
    end

    def answer
      @channel.restore
      code = exit_code(@error)
      made, omitted = @before[0].changes
      drawn, = @before[1].changes
      result = @session.result unless @error || Exits.tested
      @channel.end(
        @request.nonce,
        %({"status":"#{code.zero? ? 'ok' : 'error'}","exit_code":#{code},) +
          %("result":#{result ? Json.quote(result) : 'null'},) +
          %("interrupted":#{@interrupted},) +
          %("files":#{Json.list(made)},"files_omitted":#{omitted},"figures":#{Json.list(drawn)},) +
          %("waits":#{Exits.waits?}})
      )
    end
  end

  # Exceptions from other threads or signals do not reach the loop: they wait until code runs.
  def self.serve
    runs = Runs.new
    Thread.handle_interrupt(Object => :never) { nil while runs.serve_one }
    # Not exit: it would wait for the code's threads.
    runs.leaving? ? runs : exit!(0)
  rescue IOError, SystemCallError
    exit!(DESCRIPTORS_LOST)
  end
end

ARGV.clear
$LOAD_PATH.push(ENV.fetch('SANDBOX_WORKDIR')) # last, so that a `json.rb` of the user's shadows nothing
Sandbox::Session.note_start
Sandbox.serve.end_script

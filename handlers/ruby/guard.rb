# frozen_string_literal: true

module Sandbox
  # Runs user code so that neither its exceptions nor a signal at any instant can end the runner.
  #
  # A SIGINT raises nothing itself: it queues an Interrupt for this thread, which arrives only while the queue is open.
  class Guard
    # Whether a SIGINT reached the last run.
    attr_reader :interrupted

    def initialize
      @interrupted = @running = false
      watch
    end

    # Calls the block, lets other threads and signals raise exceptions in it, and returns what was raised. Raises nothing.
    def run
      empty_queue
      @interrupted = false
      @running = true
      Thread.handle_interrupt(Object => :immediate) { yield }
      nil
    rescue Exception => error # rubocop:disable Lint/RescueException
      error
    ensure
      @running = false
      watch
    end

    # Lets signals raise exceptions until `close`, in code that runs outside of `run`.
    def stay_open
      @running = true
    end

    def close
      @running = false
    end

    private

    # Called again after every run, since the code may have set its own handler.
    def watch
      trap('INT') do
        if @running
          @interrupted = true
          # One at a time: if every signal added to the queue, each would have to be handled before the report.
          Thread.main.raise(Interrupt, '') unless Thread.main.pending_interrupt?
        end
      end
    end

    def empty_queue
      while Thread.pending_interrupt?
        begin
          Thread.handle_interrupt(Object => :immediate) { Thread.pass }
        rescue Exception # rubocop:disable Lint/RescueException
          next
        end
      end
    end
  end
end

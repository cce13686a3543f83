# frozen_string_literal: true

module Sandbox
  # A child that runs a block ends inside `fork`. There, Ruby itself would print an error with the runner's frames.
  module Forks
    def fork
      return super unless block_given?

      super do
        yield
      rescue SystemExit, SignalException
        raise
      rescue Exception => error # rubocop:disable Lint/RescueException
        require_relative 'errors'
        Errors.print(error)
        exit(1)
      end
    end
  end

  Kernel.prepend(Forks)
  Process.singleton_class.prepend(Forks)
end

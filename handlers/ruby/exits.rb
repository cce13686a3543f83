# frozen_string_literal: true

module Sandbox
  # What code leaves for the exit of the interpreter. A session has no such moment, except for tests: those of a cell
  # run at the end of the cell.
  module Exits
    FRAMEWORKS = %r{/(minitest|test/unit|rspec/core/runner)\.rb\z} # files whose exit blocks run tests
    private_constant :FRAMEWORKS

    @last = @left = @told = @tested = false

    class << self
      # Whether there were tests at the end of the cell.
      attr_reader :tested

      # From now on, exit blocks are the code's.
      def watch
        Kernel.prepend(self)
        Kernel.singleton_class.prepend(self)
      end

      # Prepares for a cell; `last` if the interpreter exits after it.
      def expect(code, last)
        @last = last
        @tested = false
        Tests.expect if defined?(Tests)
        @left ||= end_block?(code)
      end

      # Takes an exit block of a framework in a session; nil for all other blocks.
      def take(block)
        framework = block&.source_location&.first&.match?(FRAMEWORKS)
        require_relative 'tests' if framework
        return Tests.take(block) if framework && !@last # else Ruby itself calls it

        @left = true
        nil
      end

      # Ends a cell, but not after an error: frameworks run no tests then.
      def end_cell
        return unless defined?(Tests) && ($!.nil? || ($!.is_a?(SystemExit) && $!.success?))

        @tested = Tests.new?
        Tests.run if @tested
      end

      # Whether a session has, for the first time, something that waits for an exit.
      def waits?
        return false if @last || @told

        @told = @left || trapped?
      end

      private

      # `END {}` calls no method that could be replaced.
      def end_block?(code)
        return false unless code.match?(/\bEND\s*\{/)

        require 'ripper'
        Ripper.lex(code).any? { |_, kind, text| kind == :on_kw && text == 'END' }
      end

      def trapped?
        handler = trap('EXIT', 'DEFAULT') or return false
        trap('EXIT', handler)
        true
      end
    end

    def at_exit(&block)
      Exits.take(block) || super
    end
  end
end

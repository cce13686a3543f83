# frozen_string_literal: true

module Sandbox
  # The tests of a session: with the exit blocks that frameworks registered, runs those that were defined or changed
  # since the last time.
  module Tests
    TEST = /\A(test|bench)/
    private_constant :TEST

    @blocks = []
    @ran = {}
    @running = false

    # While the tests of a cell run, a test class does not show those that ran before.
    module Selection
      def public_instance_methods(*)
        Tests.selected(self, super)
      end
    end

    class << self
      def take(block)
        @blocks << block
        block
      end

      # Prepares for a cell: test-unit runs nothing after the first time, nor if the code itself ran its tests.
      def expect
        ::Test::Unit::AutoRunner.need_auto_run = true if defined?(::Test::Unit::AutoRunner)
      end

      def new?
        return true if defined?(::RSpec.world) && ::RSpec.world.example_groups.any?

        classes.any? { |type| type.public_instance_methods.grep(TEST).any? { |name| new_method?(type, name) } }
      end

      def run
        return if @blocks.empty?

        registered = @blocks.dup
        classes.each { |type| type.singleton_class.prepend(Selection) }
        @running = true
        begin
          call_blocks
        ensure
          @running = false
          @blocks = registered
          remember
        end
      end

      def selected(type, names)
        @running ? names.select { |name| new_method?(type, name) } : names
      end

      private

      # As Ruby does at its exit: the newest block first, also those that a block registers, and all of them.
      def call_blocks
        block = @blocks.pop or return
        begin
          block.call
        ensure
          call_blocks
        end
      end

      def remember
        classes.each do |type|
          type.public_instance_methods.grep(TEST) { |name| @ran[[type, name]] = type.instance_method(name) }
        end
        ::RSpec.clear_examples if defined?(::RSpec.clear_examples)
      end

      def new_method?(type, name)
        @ran[[type, name]] != type.instance_method(name)
      end

      def classes
        (defined?(::Minitest::Runnable) ? ::Minitest::Runnable.runnables : []) +
          (defined?(::Test::Unit::TestCase) ? ::Test::Unit::TestCase::DESCENDANTS : [])
      end
    end
  end
end

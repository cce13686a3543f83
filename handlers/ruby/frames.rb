# frozen_string_literal: true

module Sandbox
  # Hides the runner's own frames from code that looks at the stack.
  module Frames
    OWN = "#{__dir__}/"
    private_constant :OWN

    class << self
      def without_own(frames)
        frames&.reject { |frame| frame.to_s.start_with?(OWN) }
      end

      # The same levels as seen from one more call.
      def deeper(levels)
        return levels + 1 unless levels.is_a?(Range)

        first, last = [levels.begin, levels.end].map { |level| level&.negative? ? level : level&.succ }
        Range.new(first, last, levels.exclude_end?)
      end
    end

    def caller(levels = 1, *length)
      Frames.without_own(super(Frames.deeper(levels), *length))
    end

    def caller_locations(levels = 1, *length)
      Frames.without_own(super(Frames.deeper(levels), *length))
    end

    # A cell has no file, but a script that looks for its folder finds the one where code starts.
    def __dir__
      location = caller_locations(1, 1).first
      return ENV.fetch('SANDBOX_WORKDIR') if location.path.start_with?('<cell ')

      location.absolute_path && File.dirname(location.absolute_path)
    end

    # For exceptions.
    module Backtraces
      def backtrace
        Frames.without_own(super)
      end

      def backtrace_locations
        Frames.without_own(super)
      end
    end

    Kernel.prepend(self)
    Kernel.singleton_class.prepend(self)
    Exception.prepend(Backtraces)
  end
end

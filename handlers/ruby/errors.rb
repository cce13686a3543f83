# frozen_string_literal: true

module Sandbox
  # Prints errors as Ruby prints them, without the runner's own frames.
  module Errors
    module_function

    def print(error)
      suggest
      strip(error)
      # The message of a syntax error contains its place.
      text = error.is_a?(SyntaxError) ? error.message : error.full_message(highlight: false, order: :top)
      $stderr.write(text.end_with?("\n") ? text : "#{text}\n")
    end

    # For an error whose own methods fail.
    def print_plainly(error)
      $stderr.write("#{Kernel.instance_method(:class).bind_call(error)}\n")
    end

    # Loads "Did you mean?", which would slow down every start, and is only used when a message is requested.
    def suggest
      require 'did_you_mean' unless defined?(::DidYouMean)
    rescue LoadError
      nil
    end

    def strip(error, seen = {}.compare_by_identity)
      return if error.nil? || seen[error]

      seen[error] = true
      if (frames = error.backtrace)
        frames = frames.reject { |frame| frame.start_with?("#{__dir__}/") }
        # Without any frames, Ruby would report that the error was raised here.
        error.set_backtrace(frames.empty? ? [$PROGRAM_NAME] : frames)
      end
      strip(error.cause, seen)
    end
  end
end

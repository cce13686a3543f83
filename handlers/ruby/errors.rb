# frozen_string_literal: true

module Sandbox
  # Prints errors as Ruby prints them.
  module Errors
    module_function

    def print(error)
      prepare(error)
      # The message of a syntax error contains its place.
      text = error.is_a?(SyntaxError) ? error.message : error.full_message(highlight: false, order: :top)
      $stderr.write(text.end_with?("\n") ? text : "#{text}\n")
    end

    # Makes an error ready to be printed.
    def prepare(error)
      suggest
      # Without any frames, Ruby would report that the error was raised here.
      error.set_backtrace([$PROGRAM_NAME]) if error.backtrace&.empty?
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
  end
end

# frozen_string_literal: true

module Sandbox
  # The state that lasts from one cell to the next: the top level of the interpreter itself.
  class Session
    RESULT_LIMIT = 20_000 # characters of a result that are reported
    INSIDE = 2000 # characters of an object's inside, as Ruby's own `inspect` shows it, that are a result
    # Code that can be needed to make again what the session has (state.rb).
    DEFINES = /\b(class|module|def|alias|undef|using|include|extend|Struct|Data|Class|Module|lambda|proc|Proc)\b|->|_eval|_exec|attr_|define_|prepend/.freeze
    SOURCE_LIMIT = 4 << 20 # bytes of such code that are kept
    Start = Struct.new(:globals, :features, :load_path, :directory)
    private_constant :RESULT_LIMIT, :INSIDE, :DEFINES, :SOURCE_LIMIT, :Start

    @sources = []
    @kept = 0

    class << self
      # The names and the code of the cells that have definitions, and whether the oldest are gone.
      attr_reader :sources, :sources_dropped

      # What was there before any code.
      attr_reader :start

      def keep(name, code)
        return unless code.match?(DEFINES)

        @sources << [name, code]
        @kept += code.bytesize
        while @kept > SOURCE_LIMIT
          @kept -= @sources.shift.last.bytesize
          @sources_dropped = true
        end
      end

      def note_start
        @start = Start.new(global_variables, $LOADED_FEATURES.dup, $LOAD_PATH.map(&:to_s), Dir.pwd)
      end
    end

    # The value of the last statement of the last cell, as text.
    attr_reader :result

    # Runs one cell; its errors are raised as they are.
    def run(request)
      @result = nil
      name = "<cell #{request.cell}>"
      $PROGRAM_NAME = name # for code that checks whether it is the main program: `if __FILE__ == $0`
      request.variables.each { |key, value| define(key, value) }
      define_data(request.code)
      Session.keep(name, request.code)
      value = evaluate(request.code, name)
      return if nil.equal?(value)

      @result = show(value)
      TOPLEVEL_BINDING.local_variable_set(:_, value)
    end

    private

    def evaluate(code, name)
      TOPLEVEL_BINDING.eval(code, name, 1)
    rescue LocalJumpError => error
      # A `return` outside of methods ends a program, and so the cell.
      raise unless error.reason == :return && error.backtrace_locations&.first&.label == '<main>'

      error.exit_value
    end

    # The text after `__END__`, as the file DATA. Ruby itself defines it only for the main script.
    def define_data(code)
      return unless code.match?(/^__END__\r?$/)

      require 'ripper'
      (line,), = Ripper.lex(code).find { |_, kind| kind == :on___end__ }
      return unless line

      data = Channel.unnamed_file(code)
      data.seek(code.lines.first(line).sum(&:bytesize))
      define('DATA', data)
    end

    def define(name, value)
      if name.match?(/\A[A-Z]/)
        Object.__send__(:remove_const, name) if Object.const_defined?(name, false)
        Object.const_set(name, value)
      else
        TOPLEVEL_BINDING.local_variable_set(name, value)
      end
    end

    # The text of a value. Each element takes at least one character, so elements beyond the limit could not be shown anyway.
    # They are cut off first, so that 100 million elements are never turned into text.
    def show(value)
      if value.instance_of?(String) || value.instance_of?(Array)
        value = value[0..RESULT_LIMIT]
      elsif value.instance_of?(Hash) && value.size > RESULT_LIMIT
        value = value.first(RESULT_LIMIT + 1).to_h
      end
      text = value.inspect
      name = Kernel.instance_method(:to_s)
      text = name.bind_call(value) unless text.is_a?(String)
      # A browser or a server: what is inside is all that it knows.
      text = "#{name.bind_call(value).chop} #{inside(value)}>" if text.length > INSIDE && plain?(value)
      text.length > RESULT_LIMIT ? "#{text[0, RESULT_LIMIT - 1]}…" : text
    end

    # Whether the class of a value says nothing about how it is shown.
    def plain?(value)
      Kernel === value && Kernel.instance_method(:method).bind_call(value, :inspect).owner == Kernel
    end

    # The names of what is inside.
    def inside(value)
      Kernel.instance_method(:instance_variables).bind_call(value).join(', ')
    end
  end
end

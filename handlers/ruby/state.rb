# frozen_string_literal: true

module Sandbox
  # Saves what the session has, and makes it again in another interpreter: definitions from their source, values by Marshal.
  module State
    HERE = File.dirname(__FILE__) # frames.rb replaces __dir__
    MAIN = TOPLEVEL_BINDING.receiver
    # Of objects that have no such methods, or other ones.
    CLASS = Kernel.instance_method(:class)
    private_constant :CLASS

    module_function

    def save(folder)
      require_relative 'state_save'
      Saving.new(folder).run
      nil
    end

    def open(folder)
      require_relative 'state_open'
      Opening.new(folder).run
      nil
    end

    # Runs a block that must not print, nor change the streams.
    def quietly
      verbose = $VERBOSE
      streams = [$stdout, $stderr]
      $VERBOSE = nil
      File.open(File::NULL, 'w') do |null|
        $stdout = $stderr = null
        yield
      end
    ensure
      $stdout, $stderr = streams
      $VERBOSE = verbose
    end

    def type_of(value)
      Module.instance_method(:to_s).bind_call(CLASS.bind_call(value))
    rescue TypeError
      'Object'
    end

    # A place for a value: a kind, the module that it belongs to, and its name.
    Place = Struct.new(:kind, :owner, :name) do
      def to_s
        owner == 'Object' || !owner ? name.to_s : "#{owner}#{kind == 'constant' ? '::' : '.'}#{name}"
      end
    end

    # What was lost, in the file that the server reads.
    class Report
      LIMIT = 500

      def initialize(folder)
        @path = File.join(folder, 'report')
        @lost = []
        @notes = []
      end

      def lose(name, type, reason)
        @lost << line('lost', name, type, reason)
      end

      def note(text)
        @notes << line('note', text)
      end

      def write(kept)
        @notes << line('note', "#{@lost.size - LIMIT} more are lost") if @lost.size > LIMIT
        text = [*@lost.first(LIMIT), *@notes, line('kept', kept.to_s)].join
        File.binwrite("#{@path}.new", text)
        File.rename("#{@path}.new", @path)
      end

      private

      def line(*fields)
        fields.map { |field| field.to_s.encode('UTF-8', invalid: :replace, undef: :replace).scrub.gsub(/[[:cntrl:]]/, ' ')[0, 200] }
              .join("\t") << "\n"
      end
    end
  end
end

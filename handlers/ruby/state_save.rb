# frozen_string_literal: true

require_relative 'definitions'
require_relative 'state_values'

module Sandbox
  module State
    # Saves in a child, which objects of the code can end, stop or change. The parent forks another one without the
    # variable at which a child stayed.
    class Saving
      PATIENCE = 3 # seconds without progress
      private_constant :PATIENCE

      def initialize(folder)
        @folder = folder
        @bad = {}
      end

      def run
        nil until attempt
      end

      private

      def attempt
        reader, writer = IO.pipe
        threads = Thread.list - [Thread.main]
        processes = children
        child = Kernel.instance_method(:fork).bind_call(MAIN) do
          reader.close
          begin
            Child.new(@folder, writer, @bad).run(threads, processes)
          rescue Exception # rubocop:disable Lint/RescueException
            Process.exit!(1)
          end
          Process.exit!(0)
        end
        writer.close
        finished, stage, reason = follow(reader)
        return true if finished

        # Nothing is left that could be the reason.
        return true if @bad.key?(stage)

        @bad[stage] = reason
        false
      ensure
        stop(child) if child
        reader&.close
      end

      # The commands of the processes that the code started and that still run.
      def children
        Dir.glob('/proc/self/task/*/children').flat_map { |path| File.read(path).split }.map do |number|
          File.binread("/proc/#{number}/cmdline").tr("\0", ' ').strip
        end
      rescue SystemCallError
        []
      end

      # Waits for the end, and returns what the child did last.
      def follow(reader)
        stage = ''
        pending = +''
        loop do
          return [false, stage, 'saving it does not end'] unless IO.select([reader], nil, nil, PATIENCE)

          pending << reader.readpartial(1 << 16).force_encoding(Encoding::UTF_8)
          *lines, pending = pending.split("\0", -1)
          return [true, stage, nil] if lines.last == 'done'

          stage = lines.last if lines.any?
        end
      rescue EOFError
        [false, stage, 'saving it ends the interpreter']
      end

      def stop(child)
        Process.kill(:KILL, child)
        Process.wait(child)
      rescue SystemCallError
        nil
      end
    end

    # What the child does.
    class Child
      EVERYTHING = '(everything)'
      FALLBACK = 16 << 20 # bytes of values that are also saved one by one
      private_constant :EVERYTHING, :FALLBACK

      NoRoom = Class.new(StandardError)

      # Counts what is dumped, tells the parent that it goes on, and passes it to a file, if there is one.
      class Output
        attr_reader :size

        def initialize(file, room, progress)
          @file = file
          @room = room
          @progress = progress
          @size = 0
          @told = 0
        end

        def binmode; end

        def write(text)
          @size += text.bytesize
          raise NoRoom if @size > @room

          @file&.write(text)
          if @size - @told > 8 << 20
            @told = @size
            @progress.call
          end
          text.bytesize
        end
      end

      def initialize(folder, writer, bad)
        @folder = folder
        @writer = writer
        @bad = bad
        @report = Report.new(folder)
      end

      def run(threads, processes)
        trap('XFSZ', 'IGNORE') # A write beyond the limit is then an error.
        [0, 1, 2].each { |number| IO.for_fd(number, autoclose: false).reopen(File::NULL, number.zero? ? 'r' : 'w') }
        @values = Values.new
        @cells = Session.sources.map { |name, code| [name, code] }
        @found = @cells.flat_map { |name, code| Definitions.new(name, code).found }
        @entries = @values.all
        note_running(threads, processes)
        take_bad
        take_procs
        save_values
        save_rest
        note_definitions
        @report.write(@kept)
        tell('done')
      end

      private

      def tell(stage)
        @stage = stage
        @writer.syswrite("#{stage}\0")
      end

      def lose(entry, reason)
        place, value = entry
        return if place.name == :_

        @report.lose(place, State.type_of(value), reason)
      end

      def take_bad
        @entries.reject! { |entry| (reason = @bad[entry[0].to_s]) && (lose(entry, reason) || true) }
      end

      # Takes out the procs, and finds their source.
      def take_procs
        procs, @entries = @entries.partition { |_, value| State.type_of(value) == 'Proc' }
        @procs = procs.filter_map do |place, value|
          found = source_of(value)
          lose([place, value], found) if found.is_a?(String)
          [place, found.to_a] unless found.is_a?(String)
        end
      end

      # The source of a proc, or why there is none.
      def source_of(value)
        file, line = value.source_location
        return 'it is not from code of the session' unless file
        return 'it uses local variables that are not those of the session' unless plain?(value.binding)

        texts = @cells.select { |name, _| name == file }.flat_map { |name, code| Definitions.new(name, code).blocks(line) }.uniq
        return 'its source is not unique in its line' unless texts.size == 1

        Definitions::Found.new(file, line, texts[0])
      rescue ArgumentError
        'it has no source' # It is made from a method or a symbol.
      end

      def plain?(scope)
        MAIN.equal?(scope.receiver) && scope.local_variables.all? do |name|
          TOPLEVEL_BINDING.local_variable_defined?(name) &&
            TOPLEVEL_BINDING.local_variable_get(name).equal?(scope.local_variable_get(name))
        end
      end

      # In one dump, so that what is shared stays shared; only if that fails, each by itself, to find those that fail.
      def save_values
        try_each if @bad.key?(EVERYTHING) || !save_together
        save_together || drop_largest while @entries.any? && !@saved
        save_together unless @saved
        @kept = @entries.size + @procs.size
        save_each
      end

      def save_together
        tell(EVERYTHING) unless @bad.key?(EVERYTHING)
        File.open(File.join(@folder, 'values'), 'wb') do |file|
          @output = Output.new(file, room, -> { tell(@stage) })
          Marshal.dump(@entries.map(&:last), @output)
        end
        @saved = true
      rescue Exception # rubocop:disable Lint/RescueException
        File.truncate(File.join(@folder, 'values'), 0)
        @saved = false
      end

      def try_each
        @sizes = {}
        @entries = @entries.select do |entry|
          tell(entry[0].to_s)
          output = Output.new(nil, room, -> { tell(@stage) })
          Marshal.dump(entry[1], output)
          @sizes[entry[0]] = output.size
        rescue NoRoom
          lose(entry, "no room in the sandbox to save #{room >> 20} MB")
          false
        rescue Exception => error # rubocop:disable Lint/RescueException
          lose(entry, Values.reason(entry[1], error))
          false
        end
      end

      def drop_largest
        largest = @entries.max_by { |place, _| @sizes ? @sizes[place] : 0 }
        @entries.delete_if { |entry| entry.equal?(largest) }
        lose(largest, "no room in the sandbox to save #{@sizes[largest[0]] >> 20} MB")
      end

      # For an interpreter that cannot open all at once.
      def save_each
        @parts = nil
        return if @output.size > FALLBACK || @output.size > room / 2

        parts = @entries.map do |place, value|
          tell(place.to_s)
          Marshal.dump(value)
        rescue Exception # rubocop:disable Lint/RescueException
          ''.b
        end
        File.binwrite(File.join(@folder, 'parts'), parts.join)
        @parts = parts.map(&:bytesize)
      rescue SystemCallError
        File.truncate(File.join(@folder, 'parts'), 0)
      end

      def save_rest
        start = Session.start
        rest = {
          version: RUBY_VERSION, places: @entries.map { |place, _| place.to_a }, parts: @parts,
          procs: @procs.map { |place, found| [place.to_a, found] }, definitions: @found.map(&:to_a), cells: @cells,
          locals: TOPLEVEL_BINDING.local_variables,
          features: ($LOADED_FEATURES - start.features).reject { |path| path.start_with?(HERE) || path.match?(%r{/rubygems[/.]}) },
          load_path: $LOAD_PATH.map(&:to_s) - start.load_path, directory: Dir.pwd == start.directory ? nil : Dir.pwd,
          environment: environment
        }
        File.binwrite(File.join(@folder, 'state'), Marshal.dump(rest))
      end

      def environment
        start = File.binread('/proc/self/environ').split("\0").to_h { |pair| pair.split('=', 2) }
        now = ENV.to_h.transform_keys(&:b).transform_values(&:b)
        (start.keys - now.keys).to_h { |name| [name, nil] }.merge(now.reject { |name, value| start[name] == value })
      end

      # What runs, and is not the value of a variable.
      def note_running(threads, processes)
        threads.reject! { |thread| @entries.any? { |_, value| thread.equal?(value) } }
        threads.each { |thread| @report.lose(thread.name || 'unnamed thread', 'Thread', 'a thread does not move') }
        processes.reject(&:empty?).each { |command| @report.lose(command, 'process', 'a process does not move') }
      end

      def note_definitions
        @report.note('definitions of the oldest cells are not kept') if Session.sources_dropped
        @values.lost_definitions(@found).each { |name, type| @report.lose(name, type, 'its source is not a statement of the top level') }
      end

      def memory
        ENV.fetch('SANDBOX_MEMORY', 1 << 40).to_i
      end

      def used
        File.read('/proc/self/statm').split[1].to_i * 4096
      end

      def room
        [memory - (2 * @used ||= used), 1 << 20].max
      end
    end
  end
end

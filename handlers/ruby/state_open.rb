# frozen_string_literal: true

module Sandbox
  module State
    # Makes again what was saved, in an interpreter that has run no code.
    class Opening
      EVERYTHING = '(everything)'
      private_constant :EVERYTHING

      def initialize(folder)
        @folder = folder
        @report = Report.new(folder)
        @kept = 0
      end

      def run
        read_deadly
        @state = Marshal.load(File.binread(path('state')))
        note_version
        State.quietly do
          open_places
          open_definitions
          open_values
          open_procs
        end
        @state[:cells].each { |name, code| Session.keep(opened(name), code) }
        @opening.close
        File.delete(path('opening'))
        @report.write(@kept)
      end

      private

      def path(name)
        File.join(@folder, name)
      end

      def read_deadly
        died = File.exist?(path('opening')) ? File.readlines(path('opening')).last : nil
        File.open(path('deadly'), 'a') { |file| file.write(died) } if died
        @deadly = File.exist?(path('deadly')) ? File.read(path('deadly')).split("\n") : []
        # Names are added: on some disks it takes long to empty a file.
        @opening = File.open(path('opening'), 'w')
      end

      # Runs a block, unless an earlier interpreter ended in it; false if it fails.
      def try(name, type)
        if @deadly.include?(name.to_s)
          @report.lose(name, type, 'opening it ended the interpreter') unless name == EVERYTHING
          return false
        end
        @opening.syswrite("#{name}\n")
        yield
        true
      rescue Exception => error # rubocop:disable Lint/RescueException
        raise if error.is_a?(Interrupt)

        @error = error
        false
      end

      def lose(name, type)
        reason = @error ? "#{@error.class}: #{@error.message}" : 'opening it ended the interpreter'
        @report.lose(name, type, reason) unless @deadly.include?(name.to_s)
      end

      def note_version
        saved = @state[:version]
        @report.note("saved by Ruby #{saved}, opened by #{RUBY_VERSION}") unless saved == RUBY_VERSION
      end

      def open_places
        @state[:environment].each { |name, value| ENV[name] = value }
        $LOAD_PATH.unshift(*@state[:load_path])
        if @state[:directory]
          Dir.exist?(@state[:directory]) ? Dir.chdir(@state[:directory]) : @report.note("the working directory #{@state[:directory]} does not exist")
        end
        @state[:locals].each { |name| TOPLEVEL_BINDING.local_variable_set(name, nil) }
        @state[:features].reverse_each { |feature| open_library(feature) }
      end

      # The last that was loaded first: it loads those that it needs.
      def open_library(feature)
        return if $LOADED_FEATURES.include?(feature)

        folder = $LOAD_PATH.map(&:to_s).select { |one| feature.start_with?("#{one}/") }.max_by(&:size)
        name = folder ? feature.delete_prefix("#{folder}/") : feature[%r{/gems/[^/]+/lib/(.+)}, 1] || feature
        try("library #{name}", 'library') { MAIN.__send__(:require, name) } || lose(name, 'library')
      end

      # A definition can need the value of a constant: those that fail are tried again when values are there.
      def open_definitions
        @late = @state[:definitions].reject { |definition| define(definition) }
      end

      def define(definition)
        cell, line, text = definition
        try("definition #{text[0, 80]}".tr("\n", ' '), 'definition') { TOPLEVEL_BINDING.eval(text, opened(cell), line) }
      end

      def opened(cell)
        cell.sub(/\A<cell/, '<opened cell')
      end

      def open_values
        places = @state[:places].map { |place| Place.new(*place) }
        values = nil
        unless load_together { |all| values = all }
          open_constants(places)
          load_together { |all| values = all }
        end
        if values
          places.zip(values) { |place, value| put(place) { value } }
        else
          open_parts(places)
        end
        open_late
        @late.each { |_, _, text| @report.lose(text.lines.first.strip, 'definition', "#{@error.class}: #{@error.message}") }
      end

      def load_together
        try(EVERYTHING, '') { yield Marshal.load(File.binread(path('values'))) }
      end

      # A class can need a constant, and a value the class.
      def open_constants(places)
        return if @late.empty? || !@state[:parts]

        places.zip(parts) { |place, part| try(place, place.kind) { set(place, Marshal.load(part)) } if place.kind == 'constant' }
        open_late
      end

      def parts
        data = File.binread(path('parts'))
        at = 0
        @state[:parts].map { |size| data.byteslice(at, size).tap { at += size } }
      end

      def open_late
        @late = @late.reject { |definition| define(definition) }
      end

      def open_parts(places)
        return places.each { |place| lose(place, place.kind) } unless @state[:parts]

        @report.note('values that were the same object are now equal ones')
        places.zip(parts) { |place, part| put(place) { Marshal.load(part) } }
      end

      def put(place)
        done = try(place, place.kind) { set(place, yield) }
        done ? @kept += 1 : lose(place, place.kind)
      end

      def set(place, value)
        owner = place.owner && Object.const_get(place.owner)
        case place.kind
        when 'local' then TOPLEVEL_BINDING.local_variable_set(place.name, value)
        when 'global' then set_global(place.name, value)
        when 'instance' then (owner || MAIN).instance_variable_set(place.name, value)
        when 'class' then owner.class_variable_set(place.name, value)
        when 'constant'
          owner.__send__(:remove_const, place.name) if owner.const_defined?(place.name, false)
          owner.const_set(place.name, value)
        end
      end

      def set_global(name, value)
        @value = value
        instance_eval("#{name} = @value", __FILE__, __LINE__)
      end

      def open_procs
        @state[:procs].each do |place, (cell, line, text)|
          put(Place.new(*place)) { TOPLEVEL_BINDING.eval(text, opened(cell), line) }
        end
      end
    end
  end
end

# frozen_string_literal: true

module Sandbox
  module State
    # The values of the session, each with its place.
    class Values
      REASONS = {
        IO => 'an open file does not move', Thread => 'a thread does not move', Proc => 'code is not kept inside of values',
        Method => 'a method object is not kept', Binding => 'a binding is not kept', Enumerator => 'its position is not kept',
        Fiber => 'its position is not kept', Mutex => 'a lock does not move'
      }.freeze
      OURS = /\A<(opened )?cell / # names of cells
      private_constant :REASONS, :OURS

      def self.reason(value, error)
        REASONS.each { |type, reason| return reason if type === value }
        error.is_a?(NoMemoryError) ? 'no room in the sandbox' : "#{error.class}: #{error.message}"
      rescue Exception # rubocop:disable Lint/RescueException
        'it cannot be saved'
      end

      def all
        locals + globals + instance_variables(MAIN, 'main') + constants(Object) + inside
      end

      # Modules of the code, with those in them.
      def modules
        @modules ||= [].tap { |found| collect(Object, found) }
      end

      # Modules and methods that no kept definition names.
      def lost_definitions(found)
        text = found.map(&:text).join("\n")
        types = modules.reject { |type| text.include?(type.name.split('::').last) }.map { |type| [type.name, type.class.name] }
        methods = Object.private_instance_methods(false) + Object.public_instance_methods(false)
        types + methods.select { |name| ours?(Object.instance_method(name).source_location) && !text.include?(name.to_s) }
                       .map { |name| [name, 'Method'] }
      end

      private

      def locals
        TOPLEVEL_BINDING.local_variables.map { |name| [Place.new('local', nil, name), TOPLEVEL_BINDING.local_variable_get(name)] }
      end

      def globals
        (global_variables - Session.start.globals).map { |name| [Place.new('global', nil, name), eval(name.to_s)] } # rubocop:disable Security/Eval
      end

      def instance_variables(object, owner)
        Kernel.instance_method(:instance_variables).bind_call(object).map do |name|
          value = Kernel.instance_method(:instance_variable_get).bind_call(object, name)
          [Place.new('instance', owner == 'main' ? nil : owner, name), value]
        end
      end

      def constants(type)
        own_constants(type).map { |name| [Place.new('constant', name_of(type), name), type.const_get(name, false)] }
                           .reject { |_, value| Module === value && modules.include?(value) }
      end

      # What modules of the code have in them.
      def inside
        modules.flat_map do |type|
          constants(type) + instance_variables(type, name_of(type)).reject { |place, _| place.name == :__members__ } +
            type.class_variables(false).map { |name| [Place.new('class', name_of(type), name), type.class_variable_get(name)] }
        end
      end

      def collect(type, found)
        own_constants(type).each do |name|
          value = type.const_get(name, false)
          next unless Module === value && name_of(value) && !found.include?(value) && ours?(Object.const_source_location(name_of(value)))

          found << value
          collect(value, found)
        end
      end

      def own_constants(type)
        type.constants(false).select { |name| !type.autoload?(name) && ours?(type.const_source_location(name, false)) && name != :DATA }
      end

      # Those that the runner sets for the code are in session.rb and here.
      def ours?(location)
        file = location&.first
        file && (file.match?(OURS) || [File.join(HERE, 'session.rb'), File.join(HERE, 'state_open.rb')].include?(file))
      end

      def name_of(type)
        Module.instance_method(:name).bind_call(type)
      end
    end
  end
end

# frozen_string_literal: true

# RubyGems when it is needed: by a require that finds nothing without it, by its name, and always where gems were
# installed, since one of them may be a newer version of what Ruby brings along.

module Sandbox
  module Gems
    SPECIFICATIONS = File.join(ENV.fetch('SANDBOX_LIBRARIES', ''), 'specifications')
    private_constant :SPECIFICATIONS

    @loaded = false

    class << self
      attr_accessor :loaded

      def installed?
        File.directory?(SPECIFICATIONS)
      end

      def load
        return if @loaded

        @loaded = true
        @seen = changed_at
        ::Gem
      end

      # Lets RubyGems see what was installed since it looked.
      def forget
        return unless @loaded && @seen != changed_at

        @seen = changed_at
        ::Gem.clear_paths
      end

      private

      def changed_at
        File.mtime(SPECIFICATIONS)
      rescue SystemCallError
        nil
      end
    end
  end
end

Object.autoload(:Gem, 'rubygems')

# RubyGems replaces both methods by its own, which call the older ones.
module Kernel
  alias sandbox_require require

  def require(name)
    Sandbox::Gems.loaded = true if name == 'rubygems'
    return sandbox_require(name) if Sandbox::Gems.loaded

    unless Sandbox::Gems.installed?
      begin
        return sandbox_require(name)
      rescue LoadError
        # RubyGems may find it; or the error is raised again, by itself and not as the cause of another.
      end
    end
    Sandbox::Gems.load
    require(name)
  end

  def gem(...)
    Sandbox::Gems.load
    gem(...)
  end

  private :sandbox_require, :require, :gem
end

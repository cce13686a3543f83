# frozen_string_literal: true

# Loads RubyGems when it is needed: by a `require` that finds nothing without it, by its name, and always if gems were
# installed, since one of them can be a newer version of a gem that Ruby includes.

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

      # Makes RubyGems see gems that were installed since it last looked.
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

# RubyGems replaces both methods with its own, which call these.
module Kernel
  alias sandbox_require require

  def require(name)
    Sandbox::Gems.loaded = true if name == 'rubygems'
    return sandbox_require(name) if Sandbox::Gems.loaded

    # Bundler changes RubyGems, which has to be there first.
    unless Sandbox::Gems.installed? || name.to_s.start_with?('bundler')
      begin
        return sandbox_require(name)
      rescue LoadError
        # RubyGems may find it; if not, the error is raised again outside of this rescue, without this one as its cause.
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

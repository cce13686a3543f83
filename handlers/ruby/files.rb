# frozen_string_literal: true

module Sandbox
  # The files in a folder at one moment, to be compared with a later scan.
  class Scan
    ENTRY_LIMIT = 10_000 # entries that one scan checks, nearest to the top first
    FILE_LIMIT = 200 # files that are named
    SKIPPED = %w[node_modules __pycache__].freeze
    TICK = 0.01 # File times come from a clock that, on the slowest kernels, ticks every 10 ms.
    private_constant :ENTRY_LIMIT, :FILE_LIMIT, :SKIPPED, :TICK

    attr_reader :files

    def initialize(folder)
      @folder = folder
      @started = Time.now
      @files = {}
      @left = ENTRY_LIMIT
      folders = ['']
      folders.each { |prefix| look_into(prefix, folders) } # grows while it is walked: breadth first
    end

    # The names of files that were created or changed since, and how many more there are.
    def changes
      found = Scan.new(@folder).files.select { |name, state| changed?(name, state) }.keys
      names = found.select(&:valid_encoding?).sort_by { |name| [name.length, name] }
      [names.first(FILE_LIMIT), found.size - [names.size, FILE_LIMIT].min]
    end

    private

    def look_into(prefix, folders)
      Dir.each_child(File.join(@folder, prefix), encoding: Encoding::UTF_8) do |name|
        return if (@left -= 1).negative?
        next if name.start_with?('.') || SKIPPED.include?(name)

        look_at("#{prefix}#{name}", folders)
      end
    rescue SystemCallError
      nil # gone, or not readable: nothing to report from there
    end

    def look_at(path, folders)
      stat = File.lstat(File.join(@folder, path))
      if stat.directory?
        folders << "#{path}/"
      elsif stat.file?
        @files[path] = [stat.mtime, stat.size, stat.ino, stat.ctime]
      end
    rescue SystemCallError
      nil
    end

    def changed?(name, state)
      known = @files[name]
      return known.first(3) != state.first(3) if known

      # A scan that stopped early has not seen everything that was there.
      !@left.negative? || state.last > @started - TICK
    end
  end
end

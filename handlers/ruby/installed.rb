# frozen_string_literal: true

# Prints gems as name==version: those in a folder, without loading the system's gems or, without a folder, all available gems.

folder = ARGV[0]
found = folder ? Dir.glob(File.join(folder, 'specifications', '*.gemspec')).sort.filter_map { |path| Gem::Specification.load(path) }
               : Gem::Specification.latest_specs(true).sort_by(&:name)
found.each { |specification| puts "#{specification.name}==#{specification.version}" }

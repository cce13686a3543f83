# frozen_string_literal: true

# Prints the gems in a folder as name==version, without asking RubyGems about those of the system.

Dir.glob(File.join(ARGV.fetch(0), 'specifications', '*.gemspec')).sort.each do |path|
  specification = Gem::Specification.load(path) or next
  puts "#{specification.name}==#{specification.version}"
end

# frozen_string_literal: true

module Sandbox
  # The definitions in the source of a cell, so that they can be evaluated again without its other statements.
  class Definitions
    Found = Struct.new(:cell, :line, :text)

    ALWAYS = %i[CLASS MODULE SCLASS DEFN ALIAS VALIAS UNDEF].freeze
    # Calls without a receiver that are definitions, or have one as their argument.
    WORDS = %i[private public protected module_function using include extend].freeze
    # Calls of constants.
    CALLS = %i[
      class_eval class_exec module_eval module_exec instance_eval define_method alias_method attr_accessor attr_reader attr_writer
      include prepend extend private_constant remove_method undef_method define_singleton_method
    ].freeze
    MAKERS = { Struct: :new, Class: :new, Module: :new, Data: :define }.freeze
    private_constant :ALWAYS, :WORDS, :CALLS, :MAKERS

    def initialize(cell, code)
      @cell = cell
      @lines = code.lines
      @root = RubyVM::AbstractSyntaxTree.parse(code)
    rescue SyntaxError
      @root = nil
    end

    def found
      body = @root&.children&.last
      statements(body).select { |node| definition?(node) }.map { |node| Found.new(@cell, node.first_lineno, text(node)) }
    end

    # The source of each block that begins at the line, with what it is given to.
    def blocks(line)
      nodes = []
      walk(@root) { |node| nodes << node if block?(node) && within?(node, line) }
      nodes.map { |node| text(node) }
    end

    private

    def statements(node)
      return [] unless node?(node)

      node.type == :BLOCK ? node.children.flat_map { |child| statements(child) } : [node]
    end

    def definition?(node)
      return false unless node?(node)

      case node.type
      when *ALWAYS then true
      when :DEFS then %i[SELF CONST COLON2].include?(node.children[0].type)
      when :CDECL then maker?(node.children.last)
      when :OP_ASGN_OR then definition?(node.children.last)
      when :FCALL, :VCALL then WORDS.include?(node.children[0])
      when :ITER, :CALL then call?(node)
      else false
      end
    end

    # Point = Struct.new(:x) do ... end
    def maker?(node)
      node = node.children[0] if node?(node) && node.type == :ITER
      node?(node) && node.type == :CALL && node.children[0].type == :CONST &&
        MAKERS[node.children[0].children[0]] == node.children[1]
    end

    def call?(node)
      node = node.children[0] if node.type == :ITER
      node.type == :CALL && %i[CONST COLON2].include?(node.children[0].type) && CALLS.include?(node.children[1])
    end

    def block?(node)
      return true if node.type == :LAMBDA
      return false unless node.type == :ITER

      call = node.children[0]
      (call.type == :FCALL && %i[lambda proc].include?(call.children[0])) ||
        (call.type == :CALL && call.children[0].type == :CONST && call.children[0].children[0] == :Proc)
    end

    def within?(node, line)
      scope = node.children.find { |child| node?(child) && child.type == :SCOPE }
      [node.first_lineno, scope&.first_lineno].include?(line)
    end

    def walk(node, &block)
      return unless node?(node)

      block.call(node)
      node.children.each { |child| walk(child, &block) }
    end

    def node?(value)
      value.is_a?(RubyVM::AbstractSyntaxTree::Node)
    end

    def text(node)
      lines = @lines[node.first_lineno - 1..node.last_lineno - 1].map(&:dup)
      lines[-1] = lines[-1].byteslice(0, node.last_column)
      lines[0] = lines[0].byteslice(node.first_column..-1)
      lines.join
    end
  end
end

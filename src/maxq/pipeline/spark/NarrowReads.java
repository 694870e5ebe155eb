// The optimizer rule by which a query reads only the columns that it uses, and only what its conditions leave.
//
// Spark hands a data source written in Python neither a list of columns nor, safely, its filters: what one use of a
// DataFrame pushed down is kept for all its uses (PythonDataSourceV2.readInfo). This rule runs when Spark has optimized
// a plan, and gives each use of a topic or store in it a source of its own, with the options `columns` and `predicate`.
// So each query also sees what is there when it runs. Nothing else of the plan is changed: all filters stay, so that
// Spark decides which rows are in the result.
//
// maxq.pipeline.session compiles this with Janino, which is part of Spark, and adds it to the session.
package maxq;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class NarrowReads extends Rule {
    private static final String COLUMNS = "columns";
    private static final String INCLUDE_HEADERS = "includeHeaders"; // one column more, if it is used
    private static final String PREDICATE = "predicate";
    private static final String CHEAPEST = "queueOffset";  // of a query that uses no column, such as a count
    private static final int MOST_VALUES = 1000;  // of one IN; a longer list stays with Spark alone
    private static final long LATEST = 1L << 57;  // microseconds since 1970 that the option takes
    private static final Set FORMATS = new HashSet(Arrays.asList("rocketmq", "rocketmq-store", "rocketmq-cluster"));
    private static final Map OPERATORS = new HashMap();

    static {
        OPERATORS.put("EqualTo", "=");
        OPERATORS.put("EqualNullSafe", "=");
        OPERATORS.put("LessThan", "<");
        OPERATORS.put("LessThanOrEqual", "<=");
        OPERATORS.put("GreaterThan", ">");
        OPERATORS.put("GreaterThanOrEqual", ">=");
        OPERATORS.put("ArrayContains", "contains");
    }

    /** Scans that this rule has made: they are not looked at again. */
    private final Set made = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

    public TreeNode apply(TreeNode plan) {
        return plan.transformDown(new Narrowing());
    }

    private class Narrowing extends scala.runtime.AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            return true;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            return narrowed((LogicalPlan) node);
        }
    }

    /** The node, or the same over a source of its own if it is a reading of ours with the filters and columns above. */
    private LogicalPlan narrowed(LogicalPlan node) {
        List above = new ArrayList();  // Project and Filters, from the top
        LogicalPlan below = node;
        if (below instanceof Project) {
            above.add(below);
            below = ((Project) below).child();
        }
        while (below instanceof Filter) {
            above.add(below);
            below = ((Filter) below).child();
        }
        if (!(below instanceof DataSourceV2ScanRelation)) {
            return node;
        }
        DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) below;
        if (!isOurs(relation) || made.contains(relation.scan())) {
            return node;
        }
        LogicalPlan found = isNarrowed(relation)
            ? reading(relation, node instanceof Project ? used(above) : null, conditions(above))
            : replaced(relation, anew(relation), relation.output());
        for (int number = above.size() - 1; number >= 0; number--) {
            found = (LogicalPlan) ((LogicalPlan) above.get(number)).withNewChildren(seq(found));
        }
        return found;
    }

    private static boolean isOurs(DataSourceV2ScanRelation relation) {
        if (!(relation.relation().table() instanceof PythonTable)) {
            return false;
        }
        return FORMATS.contains(relation.relation().table().name());
    }

    /** Its rows are messages, whose columns and conditions the source takes as options. */
    private static boolean isNarrowed(DataSourceV2ScanRelation relation) {
        String name = relation.relation().table().name();
        String table = (String) relation.relation().options().get("table");
        return name.equals("rocketmq") || (name.equals("rocketmq-store") && (table == null || table.equalsIgnoreCase("messages")));
    }

    private static List used(List above) {
        List found = new ArrayList();
        for (int number = 0; number < above.size(); number++) {
            found.add(((LogicalPlan) above.get(number)).references());
        }
        return found;
    }

    /** The relation with these of its columns (null: all) and a scan of its own. */
    private LogicalPlan reading(DataSourceV2ScanRelation relation, List used, List conditions) {
        StructType schema = new StructType();
        List output = new ArrayList();
        scala.collection.Iterator attributes = relation.output().iterator();
        while (attributes.hasNext()) {
            Attribute attribute = (Attribute) attributes.next();
            if (used == null || isIn(attribute, used)) {
                schema = schema.add(field(attribute));
                output.add(attribute);
            }
        }
        if (output.isEmpty()) {
            Attribute attribute = cheapest(relation);
            schema = schema.add(field(attribute));
            output.add(attribute);
        }
        return replaced(relation, narrow(relation, schema, conditions), PythonUtils.toSeq(output));
    }

    private LogicalPlan replaced(DataSourceV2ScanRelation relation, Scan scan, scala.collection.immutable.Seq output) {
        made.add(scan);
        Object[] parts = new Object[relation.productArity()];
        for (int number = 0; number < parts.length; number++) {
            Object part = relation.productElement(number);
            parts[number] = part == relation.scan() ? scan : part == relation.output() ? output : part;
        }
        return (LogicalPlan) relation.makeCopy(parts);
    }

    private static boolean isIn(Attribute attribute, List sets) {
        for (int number = 0; number < sets.size(); number++) {
            if (((AttributeSet) sets.get(number)).contains(attribute)) {
                return true;
            }
        }
        return false;
    }

    private static StructField field(Attribute attribute) {
        return DataTypes.createStructField(attribute.name(), attribute.dataType(), attribute.nullable());
    }

    private static Attribute cheapest(DataSourceV2ScanRelation relation) {
        scala.collection.Iterator attributes = relation.output().iterator();
        Attribute found = null;
        while (attributes.hasNext()) {
            Attribute attribute = (Attribute) attributes.next();
            if (found == null || attribute.name().equals(CHEAPEST)) {
                found = attribute;
            }
        }
        return found;
    }

    private static Scan narrow(DataSourceV2ScanRelation relation, StructType schema, List conditions) {
        Map options = new HashMap();
        String given = null;
        Iterator entries = relation.relation().options().asCaseSensitiveMap().entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            String name = (String) entry.getKey();
            if (name.equalsIgnoreCase(PREDICATE)) {
                given = (String) entry.getValue();
            } else if (!name.equalsIgnoreCase(COLUMNS) && !name.equalsIgnoreCase(INCLUDE_HEADERS)) {
                options.put(name, entry.getValue());
            }
        }
        options.put(COLUMNS, String.join(",", schema.fieldNames()));
        String predicate = predicate(given, conditions);
        if (predicate != null) {
            options.put(PREDICATE, predicate);
        }
        return scan(relation, schema, options);
    }

    /** A scan of all columns. */
    private static Scan anew(DataSourceV2ScanRelation relation) {
        return scan(relation, relation.scan().readSchema(), relation.relation().options().asCaseSensitiveMap());
    }

    private static Scan scan(DataSourceV2ScanRelation relation, StructType schema, Map options) {
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(relation.relation().table().name());
        PythonTable table = (PythonTable) source.getTable(schema, new Transform[0], options);
        return table.newScanBuilder(new CaseInsensitiveStringMap(options)).build();
    }

    // --- conditions, as the option `predicate` has them ---

    /** What the option says and these; null if that is nothing. */
    private static String predicate(String given, List conditions) {
        if (conditions.isEmpty()) {
            return given;
        }
        String ours = "[" + String.join(",", conditions) + "]";
        if (given == null || given.trim().isEmpty() || given.replaceAll("\\s", "").equals("[]")) {
            return ours;
        }
        String text = given.trim();
        if (!text.endsWith("]")) {
            return given;  // no list: the reader says so
        }
        return text.substring(0, text.length() - 1) + "," + ours.substring(1);
    }

    private static List conditions(List above) {
        List found = new ArrayList();
        for (int number = 0; number < above.size(); number++) {
            if (above.get(number) instanceof Filter) {
                collect(((Filter) above.get(number)).condition(), found);
            }
        }
        return found;
    }

    private static void collect(Expression expression, List found) {
        if (expression instanceof And) {
            collect(((And) expression).left(), found);
            collect(((And) expression).right(), found);
            return;
        }
        String condition = condition(expression);
        if (condition != null) {
            found.add(condition);
        }
    }

    /** One condition, or several with commas between them; null if readers can not use it. */
    private static String condition(Expression expression) {
        if (expression instanceof In) {
            return in(((In) expression).value(), ((In) expression).list().iterator());
        }
        if (expression instanceof InSet) {
            return in((Expression) ((InSet) expression).child(), ((InSet) expression).hset().iterator());
        }
        String operator = (String) OPERATORS.get(expression.getClass().getSimpleName());
        if (operator == null) {
            return null;
        }
        Expression left = (Expression) expression.children().apply(0);
        Expression right = (Expression) expression.children().apply(1);
        if (left instanceof Literal && !operator.equals("contains")) {
            Expression literal = left;
            left = right;
            right = literal;
            operator = turned(operator);
        }
        if (!(left instanceof AttributeReference) || !(right instanceof Literal)) {
            return null;
        }
        AttributeReference column = (AttributeReference) left;
        DataType type = column.dataType();
        Object value = ((Literal) right).value();
        if (type instanceof ArrayType) {
            DataType element = ((ArrayType) type).elementType();
            return operator.equals("contains")
                ? condition(column, operator, value(value, element, right.dataType()))
                : operator.equals("=") ? elements(column, element, (Literal) right) : null;
        }
        return condition(column, operator, value(value, type, right.dataType()));
    }

    /** What an array has that equals the literal: each of its elements. */
    private static String elements(AttributeReference column, DataType element, Literal array) {
        if (array.value() == null || !((ArrayType) array.dataType()).elementType().equals(element)) {
            return null;
        }
        List found = new ArrayList();
        Object[] values = ((ArrayData) array.value()).toObjectArray(element);
        for (int number = 0; number < values.length; number++) {
            String one = condition(column, "contains", value(values[number], element, element));
            if (one != null) {
                found.add(one);
            }
        }
        return found.isEmpty() ? null : String.join(",", found);
    }

    private static String condition(AttributeReference column, String operator, String value) {
        return value == null ? null : "[" + text(column.name()) + "," + text(operator) + "," + value + "]";
    }

    private static String turned(String operator) {
        if (operator.startsWith("<")) {
            return ">" + operator.substring(1);
        }
        return operator.startsWith(">") ? "<" + operator.substring(1) : operator;
    }

    /** Of a list of literals or of values; those that are null match nothing. */
    private static String in(Expression column, scala.collection.Iterator several) {
        if (!(column instanceof AttributeReference)) {
            return null;
        }
        List found = new ArrayList();
        while (several.hasNext()) {
            Object one = several.next();
            DataType type = column.dataType();
            if (one instanceof Expression) {
                if (!(one instanceof Literal)) {
                    return null;
                }
                type = ((Literal) one).dataType();
                one = ((Literal) one).value();
            }
            if (one == null) {
                continue;
            }
            String value = value(one, column.dataType(), type);
            if (value == null || found.size() == MOST_VALUES) {
                return null;
            }
            found.add(value);
        }
        return found.isEmpty() ? null : condition((AttributeReference) column, "in", "[" + String.join(",", found) + "]");
    }

    /** A value of Spark's own form as JSON; null: it is none, or of a type that readers decide nothing by. */
    private static String value(Object value, DataType column, DataType literal) {
        if (value == null || column == null || !column.equals(literal)) {
            return null;
        }
        if (column.equals(DataTypes.StringType)) {  // of the binary collation
            return text(value.toString());
        }
        if (column.equals(DataTypes.IntegerType) || column.equals(DataTypes.LongType)) {
            return value.toString();
        }
        if (column.equals(DataTypes.TimestampType)) {
            long time = ((Long) value).longValue();
            return time >= 0 && time < LATEST ? value.toString() : null;
        }
        return null;
    }

    private static String text(String text) {
        StringBuilder found = new StringBuilder("\"");
        for (int place = 0; place < text.length(); place++) {
            char one = text.charAt(place);
            if (one == '"' || one == '\\') {
                found.append('\\').append(one);
            } else if (one < ' ') {
                found.append(String.format("\\u%04x", new Object[] {new Integer(one)}));
            } else {
                found.append(one);
            }
        }
        return found.append('"').toString();
    }

    private static scala.collection.immutable.Seq seq(LogicalPlan one) {
        List found = new ArrayList();
        found.add(one);
        return PythonUtils.toSeq(found);
    }
}
